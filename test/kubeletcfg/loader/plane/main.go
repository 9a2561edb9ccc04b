// Command plane parses kube-controller-manager flags with the real 1.37.2
// options, for tests to compare with. It reads a JSON list of command lines
// from stdin and writes one result each. It is not part of the loader command,
// because it would add the feature gates of another component there.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapp "k8s.io/controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

type result struct {
	Error string `json:"error,omitempty"`
	// Enabled holds for each controller whether it would run.
	Enabled map[string]bool `json:"enabled,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "plane:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var lines [][]string
	if err := json.NewDecoder(in).Decode(&lines); err != nil {
		return err
	}
	results := make([]result, 0, len(lines))
	for _, args := range lines {
		enabled, err := controllers(args)
		if err != nil {
			results = append(results, result{Error: err.Error()})
			continue
		}
		results = append(results, result{Enabled: enabled})
	}
	return json.NewEncoder(out).Encode(results)
}

func controllers(args []string) (map[string]bool, error) {
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	named := o.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	for _, set := range named.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	chosen := longNames(o.Generic.Controllers)
	enabled := map[string]bool{}
	for _, name := range app.KnownControllers() {
		enabled[name] = genericapp.IsControllerEnabled(name, sets.NewString(app.ControllersDisabledByDefault()...), chosen)
	}
	return enabled, nil
}

// longNames replaces the short names of controllers that kubeadm still uses.
func longNames(list []string) []string {
	var out []string
	for _, entry := range list {
		name, off := strings.CutPrefix(entry, "-")
		if long, ok := app.ControllerAliases()[name]; ok {
			name = long
		}
		if off {
			name = "-" + name
		}
		out = append(out, name)
	}
	return out
}
