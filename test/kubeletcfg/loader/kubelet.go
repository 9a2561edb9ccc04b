package main

import (
	"context"
	"fmt"
	"strings"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // as cmd/kubelet does
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
)

// The kubelet's own steps. They are not exported, so we link to them.

//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname mergeKubeletConfigurations k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigurations(kc *kubeletconfig.KubeletConfiguration, dir string) ([]string, error)

//go:linkname kubeletConfigFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func kubeletConfigFlagPrecedence(kc *kubeletconfig.KubeletConfiguration, args []string) error

// kubeletCase is one kubelet command line.
type kubeletCase struct {
	Main  string   `json:"main"`
	Dir   string   `json:"dir"`
	Flags []string `json:"flags"`
}

// kubeletResult is what became of it.
type kubeletResult struct {
	Starts  bool     `json:"starts"`
	Error   string   `json:"error,omitempty"`
	Warned  bool     `json:"warned"`
	Skipped []string `json:"skipped,omitempty"`
	// Config is the effective configuration, Gates what its gates come to.
	Config *kubeletv1beta1.KubeletConfiguration `json:"config,omitempty"`
	Gates  map[string]bool                      `json:"gates,omitempty"`
}

var pristineGates = utilfeature.DefaultMutableFeatureGate.DeepCopy()

// loadKubelet goes through the same steps as NewKubeletCommand, up to the one
// that would start something.
func loadKubelet(ctx context.Context, c kubeletCase) (r kubeletResult) {
	gates := pristineGates.DeepCopy()
	utilfeature.DefaultMutableFeatureGate, utilfeature.DefaultFeatureGate = gates, gates
	defer func() {
		if p := recover(); p != nil { // how defaulting reports an unknown gate
			r.Starts, r.Error, r.Config = false, fmt.Sprint("panic: ", p), nil
		}
	}()
	logger := funcr.New(func(_, args string) {
		r.Warned = r.Warned || strings.Contains(args, "Using lenient decoding")
	}, funcr.Options{})
	kc, err := effective(klog.NewContext(ctx, logger), c, gates, &r)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Starts = true
	r.Config = &kubeletv1beta1.KubeletConfiguration{}
	if err := v1beta1.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(kc, r.Config, nil); err != nil {
		r.Error = err.Error()
	}
	r.Gates = map[string]bool{}
	for name := range gates.GetAll() {
		r.Gates[string(name)] = gates.Enabled(name)
	}
	return r
}

func effective(ctx context.Context, c kubeletCase, gates featuregate.MutableVersionedFeatureGate, r *kubeletResult) (*kubeletconfig.KubeletConfiguration, error) {
	kc, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	options.AddKubeletConfigFlags(flags, kc)
	if err := flags.Parse(c.Flags); err != nil {
		return nil, err
	}
	if err := gates.SetFromMap(kc.FeatureGates); err != nil {
		return nil, err
	}
	if c.Main != "" {
		if kc, err = loadConfigFile(ctx, c.Main); err != nil {
			return nil, err
		}
	}
	if c.Dir != "" {
		if r.Skipped, err = mergeKubeletConfigurations(kc, c.Dir); err != nil {
			return nil, err
		}
	}
	if c.Main != "" || c.Dir != "" {
		if err := kubeletConfigFlagPrecedence(kc, c.Flags); err != nil {
			return nil, err
		}
		if err := gates.SetFromMap(kc.FeatureGates); err != nil {
			return nil, err
		}
	}
	if errs := logsapi.Validate(&kc.Logging, gates, field.NewPath("logging")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return kc, validate(*kc, gates)
}

// validate leaves out what depends on the host: this one may run cgroup v1.
func validate(kc kubeletconfig.KubeletConfiguration, gates featuregate.FeatureGate) error {
	kc.FailCgroupV1 = false
	if kc.SingleProcessOOMKill != nil {
		kc.SingleProcessOOMKill = new(true)
	}
	return validation.ValidateKubeletConfiguration(&kc, gates)
}
