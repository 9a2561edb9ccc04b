package main

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/validation"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/patches"
	"sigs.k8s.io/yaml"
)

// kubeadmCase is either a configuration document to decode strictly, or a
// patch directory to apply to Target.
type kubeadmCase struct {
	Document string `json:"document"`

	Dir    string `json:"dir"`
	Target string `json:"target"`
	Data   string `json:"data"`
}

type kubeadmResult struct {
	Error string `json:"error,omitempty"`
	// Kind that was decoded.
	Kind string `json:"kind,omitempty"`
	// Patched is Data after the patches; Log what kubeadm said meanwhile.
	Patched json.RawMessage `json:"patched,omitempty"`
	Log     string          `json:"log,omitempty"`
}

func loadKubeadm(c kubeadmCase) kubeadmResult {
	if c.Dir != "" {
		return applyPatches(c)
	}
	obj, gvk, err := strict().Decode([]byte(c.Document), nil, nil)
	if err == nil {
		err = invalid(obj)
	}
	if err != nil {
		return kubeadmResult{Error: err.Error()}
	}
	return kubeadmResult{Kind: gvk.Kind}
}

func strict() runtime.Decoder {
	return serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDecoder()
}

// invalid validates the parts that we render.
func invalid(obj runtime.Object) error {
	switch c := obj.(type) {
	case *kubeadm.ClusterConfiguration:
		errs := validation.ValidateControllerManager(&c.ControllerManager, field.NewPath("controllerManager"))
		return append(errs, validation.ValidateFeatureGates(c.FeatureGates, field.NewPath("featureGates"))...).ToAggregate()
	case *kubeadm.InitConfiguration:
		if c.Patches != nil {
			return validation.ValidateAbsolutePath(c.Patches.Directory, field.NewPath("patches", "directory")).ToAggregate()
		}
	case *kubeadm.JoinConfiguration:
		if c.Patches != nil {
			return validation.ValidateAbsolutePath(c.Patches.Directory, field.NewPath("patches", "directory")).ToAggregate()
		}
	}
	return nil
}

func applyPatches(c kubeadmCase) kubeadmResult {
	var log bytes.Buffer
	m, err := patches.GetPatchManagerForPath(c.Dir, patches.KnownTargets(), &log)
	if err != nil {
		return kubeadmResult{Error: err.Error(), Log: log.String()}
	}
	target := &patches.PatchTarget{Name: c.Target, Data: []byte(c.Data), StrategicMergePatchObject: corev1.Pod{}}
	if c.Target == patches.KubeletConfiguration {
		target.StrategicMergePatchObject = kubeletv1beta1.KubeletConfiguration{}
	}
	if err := m.ApplyPatchesToTarget(target); err != nil {
		return kubeadmResult{Error: err.Error(), Log: log.String()}
	}
	patched, err := yaml.YAMLToJSON(target.Data) // still YAML if nothing applied
	if err != nil {
		return kubeadmResult{Error: err.Error(), Log: log.String()}
	}
	return kubeadmResult{Patched: patched, Log: log.String()}
}
