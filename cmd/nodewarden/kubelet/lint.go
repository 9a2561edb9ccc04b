package kubelet

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

type lintOptions struct {
	configDir      string
	kubeletVersion string
	featureGates   map[string]string
	output         string
}

func lintCommand(s Streams) *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint [FILE...] --kubelet-version VERSION [--config-dir DIR]",
		Short: "Say what a kubelet makes of its configuration files",
		Long: `Say what a kubelet makes of its configuration files.

Each FILE is the --config file of one kubelet; --config-dir is merged over each
of them. Every setting is applied, ignored with a warning or ignored silently,
or it keeps the kubelet from starting.

Exit code 0: everything is applied. 1: there are findings. 2: the question
could not be answered, for example because the version cannot be read.`,
		RunE: func(_ *cobra.Command, files []string) error { return lint(s, o, files) },
	}
	f := cmd.Flags()
	f.StringVar(&o.configDir, "config-dir", "", "drop-in directory, as given to the kubelet")
	f.StringVar(&o.kubeletVersion, "kubelet-version", "", "version of the kubelet, such as v1.37.2 or v1.38.0-vendor.1 (required)")
	f.StringToStringVar(&o.featureGates, "feature-gates", nil, "feature gates from the kubelet's command line, such as Name=true")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

func lint(s Streams, o lintOptions, files []string) error {
	in, err := o.input(files)
	if err != nil {
		return err
	}
	reports := make([]kubeletcfg.Report, 0, max(len(files), 1))
	for _, name := range files {
		each := in
		each.Main = new(readFile(name))
		abs, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		each.MainDir = filepath.Dir(abs)
		reports = append(reports, kubeletcfg.Lint(each))
	}
	if len(files) == 0 {
		reports = append(reports, kubeletcfg.Lint(in))
	}
	if err := printReports(s, o.output, reports); err != nil {
		return err
	}
	for _, r := range reports {
		if !r.Clean() {
			return ErrFindings
		}
	}
	return nil
}

func (o lintOptions) input(files []string) (kubeletcfg.Input, error) {
	if len(files) == 0 && o.configDir == "" {
		return kubeletcfg.Input{}, fmt.Errorf("nothing to lint: name a --config FILE, a --config-dir, or both")
	}
	if o.output != "text" && o.output != "json" {
		return kubeletcfg.Input{}, fmt.Errorf("--output: %q is neither text nor json", o.output)
	}
	if o.kubeletVersion == "" {
		return kubeletcfg.Input{}, fmt.Errorf("--kubelet-version is required: what a kubelet does depends on it")
	}
	version, err := kubeletcfg.ParseVersion(o.kubeletVersion)
	if err != nil {
		return kubeletcfg.Input{}, err
	}
	gates, err := parseGates(o.featureGates)
	if err != nil {
		return kubeletcfg.Input{}, err
	}
	in := kubeletcfg.Input{Version: version, FeatureGates: gates, DirName: o.configDir}
	if o.configDir != "" {
		in.Dir, err = readDir(o.configDir)
	}
	return in, err
}

func parseGates(texts map[string]string) (map[string]bool, error) {
	gates := map[string]bool{}
	for name, text := range texts {
		on, err := strconv.ParseBool(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--feature-gates: %s=%s: write true or false", name, text)
		}
		gates[strings.TrimSpace(name)] = on
	}
	return gates, nil
}

func printReports(s Streams, output string, reports []kubeletcfg.Report) error {
	if output == "json" {
		e := json.NewEncoder(s.Out)
		e.SetIndent("", "  ")
		return e.Encode(reports)
	}
	for _, r := range reports {
		if _, err := fmt.Fprint(s.Out, r); err != nil {
			return err
		}
	}
	return nil
}
