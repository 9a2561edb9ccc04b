// Command generate writes the parts of deploy/ that follow from something else:
// the chart's copy of the contract from the code that renders it as policies,
// its copy of the alerts, and its schema and README from its values.
//
// With -check it writes nothing, names what is out of date and fails. It never
// runs helm and never decides what a rule means.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . -chart ../chart

// file is something to write.
type file struct {
	// name is relative to the chart.
	name string
	text []byte
}

func main() {
	chart := flag.String("chart", "deploy/chart", "folder of the chart")
	check := flag.Bool("check", false, "write nothing; fail if a file is out of date")
	flag.Parse()
	if err := run(*chart, *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(chart string, check bool) error {
	files, err := generated(chart)
	if err != nil {
		return err
	}
	var stale []error
	for _, f := range files {
		path := filepath.Join(chart, f.name)
		if !check {
			if err := os.WriteFile(path, f.text, 0o644); err != nil {
				return err
			}
			continue
		}
		if held, err := os.ReadFile(path); err != nil || !bytes.Equal(held, f.text) {
			stale = append(stale, fmt.Errorf("%s is out of date: run make generate", path))
		}
	}
	return errors.Join(stale...)
}

// generated is every file, with its text.
func generated(chart string) ([]file, error) {
	c, err := contractFile()
	if err != nil {
		return nil, err
	}
	values, err := readValues(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return nil, err
	}
	schema, err := values.schema()
	if err != nil {
		return nil, err
	}
	files := []file{{"files/contract.yaml", c}, {"values.schema.json", schema}, {"README.md", values.readme()}}
	// A chart can only read what lies in its own folder.
	for _, name := range []string{"servicemonitor.yaml", "prometheusrule.yaml"} {
		text, err := os.ReadFile(filepath.Join(chart, "..", "monitoring", name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"files/monitoring/" + name, append([]byte("# Copied by deploy/generate. DO NOT EDIT.\n"), text...)})
	}
	return files, nil
}
