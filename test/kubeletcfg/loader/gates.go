package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// printGates writes one line a gate, in the form of kubeletcfg/gates.txt:
//
//	Name 1.30:alpha:off 1.33:beta:on 1.35:ga:on:locked needs Other,Another
func printGates(w io.Writer) error {
	gate := utilfeature.DefaultMutableFeatureGate
	all, needs := gate.GetAllVersioned(), gate.Dependencies()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		line := []string{string(name)}
		for _, spec := range all[name] {
			line = append(line, specText(spec))
		}
		if deps := needs[name]; len(deps) > 0 {
			line = append(line, "needs", joined(deps))
		}
		if _, err := fmt.Fprintln(w, strings.Join(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

func specText(s featuregate.FeatureSpec) string {
	text := fmt.Sprintf("%d.%d:%s:%s", s.Version.Major(), s.Version.Minor(),
		strings.ToLower(cmp.Or(string(s.PreRelease), "ga")), map[bool]string{true: "on", false: "off"}[s.Default])
	if s.LockToDefault {
		text += ":locked"
	}
	return text
}

func joined(features []featuregate.Feature) string {
	var names []string
	for _, f := range features {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
