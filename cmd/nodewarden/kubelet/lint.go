package kubelet

import (
	"encoding/json"
	"errors"
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
	kubeadmPatches string
	clusterAPI     []string
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
or it keeps the kubelet from starting. --kubeadm-patches and --cluster-api look
at what brings such files to a machine, and need no version.

Exit code 0: everything is applied. 1: there are findings. 2: the question
could not be answered, for example because a FILE or the version cannot be read,
or because there is nothing in what was named.`,
		RunE: func(_ *cobra.Command, files []string) error { return lint(s, o, files) },
	}
	f := cmd.Flags()
	f.StringVar(&o.configDir, "config-dir", "", "drop-in directory, as given to the kubelet")
	f.StringVar(&o.kubeletVersion, "kubelet-version", "", "version of the kubelet, such as v1.37.2 or v1.38.0-vendor.1")
	f.StringToStringVar(&o.featureGates, "feature-gates", nil, "feature gates from the kubelet's command line, such as Name=true")
	f.StringVar(&o.kubeadmPatches, "kubeadm-patches", "", "directory of kubeadm patches, as given to kubeadm --patches")
	f.StringSliceVar(&o.clusterAPI, "cluster-api", nil, "manifests with KubeadmControlPlane or KubeadmConfigTemplate objects")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

// lintResult is what lint found, in the shape of its JSON output.
type lintResult struct {
	Kubelets []kubeletcfg.Report `json:"kubelets"`
	// Carriers are findings about kubeadm patches and Cluster API objects.
	Carriers []kubeletcfg.Finding `json:"carriers"`

	// looked says what was looked at in search of those.
	looked []string
}

func lint(s Streams, o lintOptions, files []string) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("--output: %q is neither text nor json", o.output)
	}
	var r lintResult
	var err error
	if r.Kubelets, err = o.kubelets(files); err != nil {
		return err
	}
	if err := r.carriers(o); err != nil {
		return err
	}
	if len(r.Kubelets) == 0 && o.kubeadmPatches == "" && len(o.clusterAPI) == 0 {
		return errors.New("nothing to lint: name a --config FILE, a --config-dir, --kubeadm-patches or --cluster-api")
	}
	if err := r.print(s, o.output); err != nil {
		return err
	}
	return r.verdict()
}

func (r lintResult) verdict() error {
	for _, k := range r.Kubelets {
		if !k.Clean() {
			return ErrFindings
		}
	}
	if len(r.Carriers) > 0 {
		return ErrFindings
	}
	return nil
}

// kubelets lints each file as the --config file of a kubelet of its own.
func (o lintOptions) kubelets(files []string) ([]kubeletcfg.Report, error) {
	if len(files) == 0 && o.configDir == "" {
		return []kubeletcfg.Report{}, nil
	}
	in, err := o.input()
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return []kubeletcfg.Report{kubeletcfg.Lint(in)}, nil
	}
	var reports []kubeletcfg.Report
	var errs []error
	for _, name := range files {
		main := readFile(name)
		abs, err := filepath.Abs(name)
		if err = errors.Join(main.Err, err); err != nil {
			errs = append(errs, fmt.Errorf("cannot lint %s: %w", name, err))
			continue
		}
		in.Main, in.MainDir = &main, filepath.Dir(abs)
		reports = append(reports, kubeletcfg.Lint(in))
	}
	return reports, errors.Join(errs...)
}

func (o lintOptions) input() (kubeletcfg.Input, error) {
	in := kubeletcfg.Input{DirName: o.configDir}
	if o.kubeletVersion == "" {
		return in, errors.New("--kubelet-version is required: what a kubelet does depends on it")
	}
	var err error
	if in.Version, err = kubeletcfg.ParseVersion(o.kubeletVersion); err != nil {
		return in, fmt.Errorf("--kubelet-version: %w", err)
	}
	if in.FeatureGates, err = parseGates(o.featureGates); err != nil {
		return in, err
	}
	if o.configDir != "" {
		if in.Dir, err = readDir(o.configDir); err != nil {
			return in, fmt.Errorf("--config-dir: %w", err)
		}
		if len(in.Dir) == 0 {
			return in, fmt.Errorf("--config-dir: %s holds no file: want drop-ins, whose names end in .conf; of an empty directory a kubelet takes nothing, so leave it out if that is meant", o.configDir)
		}
	}
	return in, nil
}

// carriers lints what brings configuration to a machine.
func (r *lintResult) carriers(o lintOptions) error {
	r.Carriers = []kubeletcfg.Finding{}
	if o.kubeadmPatches != "" {
		files, err := readDir(o.kubeadmPatches)
		if err != nil {
			return fmt.Errorf("--kubeadm-patches: %w", err)
		}
		if len(files) == 0 {
			return fmt.Errorf("--kubeadm-patches: %s holds no file: want patches such as kubeletconfiguration0+merge.yaml", o.kubeadmPatches)
		}
		r.looked = append(r.looked, fmt.Sprintf("%s, files: %d", o.kubeadmPatches, len(files)))
		r.Carriers = append(r.Carriers, kubeletcfg.LintKubeadmPatches(o.kubeadmPatches, files)...)
	}
	for _, name := range o.clusterAPI {
		found, err := kubeletcfg.LintClusterAPI(readFile(name))
		if err != nil {
			return fmt.Errorf("--cluster-api: %w", err)
		}
		r.looked = append(r.looked, name)
		r.Carriers = append(r.Carriers, found...)
	}
	return nil
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

func (r lintResult) print(s Streams, output string) error {
	if output == "json" {
		e := json.NewEncoder(s.Out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var b strings.Builder
	for _, k := range r.Kubelets {
		b.WriteString(k.String())
	}
	for _, f := range r.Carriers {
		fmt.Fprintf(&b, "%s\n", f)
	}
	if len(r.Carriers) == 0 && len(r.looked) > 0 {
		fmt.Fprintf(&b, "no findings in: %s\n", strings.Join(r.looked, "; "))
	}
	_, err := fmt.Fprint(s.Out, b.String())
	return err
}
