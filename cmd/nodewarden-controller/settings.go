package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
	"github.com/nodewarden/nodewarden/controller"
)

const externalDetection featuregate.Feature = controller.Gate

// settings are what file and flags come to.
type settings struct {
	config  *config
	options controller.Options
	flags   *boot.Flags
}

// parse reads the file that --config names, then the flags over it.
func parse(args []string, out io.Writer) (settings, error) {
	s := settings{config: defaults()}
	gate := featuregate.NewFeatureGate()
	if err := gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{externalDetection: {Default: false, PreRelease: featuregate.Alpha}}); err != nil {
		return s, fmt.Errorf("declare feature gates: %w", err)
	}
	path := configPath(args)
	if path != "" {
		if err := s.config.load(path); err != nil {
			return s, usage(err)
		}
		if err := gate.SetFromMap(s.config.FeatureGates); err != nil {
			return s, usage(fmt.Errorf("--config %s: featureGates: %w", path, err))
		}
	}
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	s.flags = boot.NewFlags(fs, name, about)
	s.flags.MetricsAddress = s.config.MetricsBindAddress
	s.config.addFlags(fs)
	gate.AddFlag(fs)
	addConfigFlag(fs)
	printConfig := fs.Bool("print-config", false, "Print the configuration that file and flags come to, as a file, and exit.")
	err := s.flags.Parse(fs, args, out, func() (errs field.ErrorList) {
		s.options, errs = s.config.options(gate)
		return asFlags(errs)
	})
	if err == nil && *printConfig {
		err = s.print(out, gate)
	}
	return s, err
}

func usage(err error) error {
	return boot.UsageError{Problems: strings.Split(err.Error(), "\n")}
}

func addConfigFlag(fs *pflag.FlagSet) *string {
	return fs.String("config", "", "Path of a configuration file, "+configVersion+" "+configKind+". Flags that are given win over it.")
}

// configPath looks for --config alone: whatever else is wrong is found later.
func configPath(args []string) string {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	path := addConfigFlag(fs)
	_ = fs.Parse(args) // the real parse reports it
	return *path
}

// print writes the configuration in effect.
func (s settings) print(out io.Writer, gate featuregate.FeatureGate) error {
	s.config.MetricsBindAddress = s.flags.MetricsAddress
	s.config.FeatureGates = map[string]bool{controller.Gate: gate.Enabled(externalDetection)}
	raw, err := yaml.Marshal(s.config)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	if _, err := out.Write(raw); err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	return boot.ErrDone
}

// flagOf names the flags that are not simply their field in lower case.
var flagOf = strings.NewReplacer(
	"clientConnection.", "kube-api-",
	"leaderElection.", "leader-elect-",
)

// asFlags gives problems the names of the flags that set their fields.
func asFlags(errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		var b strings.Builder
		for _, r := range flagOf.Replace(e.Field) {
			if unicode.IsUpper(r) {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		}
		e.Field = b.String()
	}
	return errs
}
