// Command clusterapi decodes manifests strictly into the types of Cluster API,
// for tests to know what those would accept. It reads a JSON list of YAML
// documents from stdin and writes one result a document.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

type result struct {
	Kind  string `json:"kind,omitempty"`
	Error string `json:"error,omitempty"`
	// Object is the document as the types write it again.
	Object runtime.Object `json:"object,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "clusterapi:", err)
		os.Exit(1)
	}
}

func run() error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var documents []string
	if err := json.NewDecoder(os.Stdin).Decode(&documents); err != nil {
		return err
	}
	results := make([]result, 0, len(documents))
	for _, doc := range documents {
		results = append(results, decode(decoder, []byte(doc)))
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

// decode goes through the types and back, and must come out the same.
func decode(d runtime.Decoder, doc []byte) result {
	obj, gvk, err := d.Decode(doc, nil, nil)
	if err != nil {
		return result{Error: err.Error()}
	}
	text, err := yaml.Marshal(obj)
	if err != nil {
		return result{Error: err.Error()}
	}
	again, _, err := d.Decode(text, nil, nil)
	if err != nil || !reflect.DeepEqual(again, obj) {
		return result{Error: fmt.Sprintf("does not survive a round trip: %v", err)}
	}
	return result{Kind: gvk.Kind, Object: obj}
}
