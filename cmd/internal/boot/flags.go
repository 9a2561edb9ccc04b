package boot

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"
)

// UsageError is a command line that cannot be used, with everything wrong in it.
type UsageError struct{ Problems []string }

func (e UsageError) Error() string { return strings.Join(e.Problems, "\n") }

// ErrDone is returned by Parse when --help or --version was all that was asked
// for, and has been answered.
var ErrDone = errors.New("done")

// DefaultMetricsAddress is where health and metrics are served.
const DefaultMetricsAddress = ":8080"

// Flags are the flags that every server has.
type Flags struct {
	// MetricsAddress is where health and metrics are served, host:port.
	MetricsAddress string

	name        string
	about       string
	logging     *logsapi.LoggingConfiguration
	showVersion bool
}

// NewFlags adds the shared flags of the server of that name to fs. About is one
// sentence on what it does, for --help.
func NewFlags(fs *pflag.FlagSet, name, about string) *Flags {
	f := &Flags{name: name, about: about, logging: logsapi.NewLoggingConfiguration()}
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.StringVar(&f.MetricsAddress, "metrics-bind-address", DefaultMetricsAddress, "Address of /healthz, /readyz and /metrics, host:port. An empty host is every address.")
	fs.BoolVar(&f.showVersion, "version", false, "Print the version and exit.")
	addLogFlags(fs, f.logging)
	return f
}

// addLogFlags adds those log flags that work without a feature gate.
func addLogFlags(fs *pflag.FlagSet, c *logsapi.LoggingConfiguration) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(c, all)
	for _, name := range []string{"logging-format", "log-flush-frequency", "v", "vmodule"} {
		fs.AddFlag(all.Lookup(name))
	}
}

// Parse reads args into fs. Problems of values are all reported, together with
// those that further finds.
func (f *Flags) Parse(fs *pflag.FlagSet, args []string, out io.Writer, further func() field.ErrorList) error {
	var problems []string
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.ParseAll(args, func(flag *pflag.Flag, value string) error {
		if value == "" && namesFile(flag.Name) {
			problems = append(problems, fmt.Sprintf(`--%s "": want the path of a file, or leave it out`, flag.Name))
		}
		if err := fs.Set(flag.Name, value); err != nil {
			problems = append(problems, err.Error())
		}
		return nil
	})
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return f.help(fs, out)
	case err != nil:
		problems = append(problems, err.Error())
	case f.showVersion:
		fmt.Fprintf(out, "%s %s\n", f.name, Version())
		return ErrDone
	}
	for _, arg := range fs.Args() {
		problems = append(problems, fmt.Sprintf("unexpected argument %q: everything is a flag", arg))
	}
	for _, e := range append(f.validate(), further()...) {
		problems = append(problems, "--"+e.Error())
	}
	if len(problems) > 0 {
		return UsageError{problems}
	}
	return nil
}

// namesFile reports whether a flag takes a file. A variable that was not set
// must not stand for none: without one, servers are more lenient.
func namesFile(flag string) bool {
	return flag == "config" || flag == "kubeconfig" || strings.HasSuffix(flag, "-file")
}

func (f *Flags) help(fs *pflag.FlagSet, out io.Writer) error {
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s [flags]\n\nFlags:\n%s", f.about, f.name, fs.FlagUsagesWrapped(100))
	return ErrDone
}

func (f *Flags) validate() field.ErrorList {
	errs := logsapi.Validate(f.logging, nil, nil)
	for _, e := range errs {
		e.Field = logFlag(e.Field)
	}
	if _, _, err := net.SplitHostPort(f.MetricsAddress); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("metrics-bind-address"), f.MetricsAddress, "want host:port, such as "+DefaultMetricsAddress))
	}
	return errs
}

// logFlag is the flag behind a field of a LoggingConfiguration.
func logFlag(name string) string {
	switch name {
	case "format":
		return "logging-format"
	case "flushFrequency":
		return "log-flush-frequency"
	case "verbosity":
		return "v"
	}
	return name
}

// StartLogs makes the log flags take effect. A process can do this once.
func (f *Flags) StartLogs() error { return logsapi.ValidateAndApply(f.logging, nil) }

// Version is what the binary was built from.
func Version() string {
	v := version.Get().GitVersion
	if !strings.Contains(v, "$Format") {
		return v
	}
	// Built without a stamp, such as by go install.
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
