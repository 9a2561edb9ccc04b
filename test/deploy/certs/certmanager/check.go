package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// checkFiles reads every document of cert-manager's API group in files, or in
// standard input for -, with its own types: an unknown or repeated field, or a
// value of another type, is an error. Other documents are left alone.
func checkFiles(files []string) error {
	var problems []error
	found := 0
	for _, name := range files {
		text, err := readFile(name)
		if err != nil {
			return err
		}
		n, err := checkText(text)
		found += n
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	if found == 0 {
		problems = append(problems, errors.New("no document of "+certmanager.SchemeGroupVersion.Group+" at all"))
	}
	return errors.Join(problems...)
}

func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}

func checkText(text []byte) (found int, err error) {
	scheme, err := newScheme()
	if err != nil {
		return 0, err
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	buffer := make([]byte, len(text)+1)
	var problems []error
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return found, errors.Join(problems...)
		}
		if err != nil {
			return found, err
		}
		if !bytes.Contains(buffer[:n], []byte("apiVersion: cert-manager.io/")) {
			continue
		}
		found++
		if _, _, err := strict.Decode(buffer[:n], nil, nil); err != nil {
			problems = append(problems, err)
		}
	}
}
