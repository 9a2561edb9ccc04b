package kubeletcfg

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// codecs are the two decoders of a kubelet: the strict one it tries first, and
// the lenient one a --config file gets as a second chance.
type codecs struct{ strict, lenient runtime.Decoder }

func codecsFor(v Version) codecs {
	scheme := runtime.NewScheme()
	gvk := v1beta1.SchemeGroupVersion.WithKind(kubeletKind)
	if v.knowsNodeLease() {
		scheme.AddKnownTypeWithName(gvk, &Config{})
	} else {
		scheme.AddKnownTypeWithName(gvk, &v1beta1.KubeletConfiguration{})
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	lenient := serializer.NewCodecFactory(scheme)
	return codecs{strict.UniversalDeserializer(), lenient.UniversalDeserializer()}
}

var errEmpty = errors.New("the file is empty; a kubelet wants at least apiVersion and kind")

// main decodes a --config file. lenient says that the strict decoder refused
// it and why, and that the kubelet went on with a warning.
func (c codecs) main(data []byte) (cfg *Config, lenient, fatal error) {
	if len(data) == 0 {
		return nil, nil, errEmpty
	}
	obj, _, err := c.strict.Decode(data, nil, nil)
	if err != nil {
		if !runtime.IsStrictDecodingError(err) {
			return nil, nil, err
		}
		lenient = err
		if obj, _, err = c.lenient.Decode(data, nil, nil); err != nil {
			return nil, nil, err
		}
	}
	switch obj := obj.(type) {
	case *Config:
		return obj, lenient, nil
	case *v1beta1.KubeletConfiguration:
		return &Config{KubeletConfiguration: *obj}, lenient, nil
	}
	return nil, nil, fmt.Errorf("is a %T, not a %s", obj, kubeletKind)
}

// rawDocument is the first document of data as plain values, for messages. It
// is nil where data is no mapping.
func rawDocument(data []byte) map[string]any {
	if !looksLikeJSON(data) {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil
		}
	}
	doc, err := generic(data)
	if err != nil {
		return nil
	}
	return doc
}

// dropIn decodes a file of --config-dir into the merge patch it is.
func (c codecs) dropIn(data []byte) (map[string]any, error) {
	if len(data) == 0 {
		return nil, errEmpty
	}
	obj := &unstructured.Unstructured{}
	_, gvk, err := c.strict.Decode(data, nil, obj)
	if err != nil {
		return nil, err
	}
	if want := v1beta1.SchemeGroupVersion.WithKind(kubeletKind); *gvk != want {
		return nil, fmt.Errorf("is %s of %q; a drop-in must be %s of %q", gvk.Kind, gvk.GroupVersion(), kubeletKind, kubeletAPIVersion)
	}
	patch, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	return generic(patch)
}
