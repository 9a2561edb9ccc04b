package kubeletcfg

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// gatesText is the feature gates of kubelet 1.37.2 with their history, one a
// line: Name 1.30:alpha:off 1.33:beta:on 1.35:ga:on:locked needs Other,Another.
// A test compares it with the kubelet's own registry.
//
//go:embed gates.txt
var gatesText string

// stage is how far a feature gate has come at some version.
type stage struct {
	minor  int
	level  string // alpha, beta, ga, deprecated
	on     bool   // the default
	locked bool
}

type gateHistory struct {
	stages []stage
	needs  []string
}

var gateHistories = parseGates(gatesText)

func parseGates(text string) map[string]gateHistory {
	all := map[string]gateHistory{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		var h gateHistory
		for i, word := range words[1:] {
			if word == "needs" {
				h.needs = strings.Split(words[i+2], ",")
				break
			}
			h.stages = append(h.stages, parseStage(word))
		}
		all[words[0]] = h
	}
	return all
}

func parseStage(word string) stage {
	parts := strings.Split(word, ":")
	_, minor, _ := strings.Cut(parts[0], ".")
	n, _ := strconv.Atoi(minor)
	return stage{minor: n, level: parts[1], on: parts[2] == "on", locked: len(parts) > 3}
}

// at is the stage of a gate in a kubelet of version v; ok is false where that
// kubelet does not know the gate.
func (h gateHistory) at(v Version) (stage, bool) {
	for _, s := range slices.Backward(h.stages) {
		if s.minor <= v.minor {
			return s, true
		}
	}
	return stage{}, false
}

// gateStage looks a gate up, the one of KEP-6371 included.
func gateStage(name string, v Version) (stage, bool) {
	if name == NodeLeaseGate {
		return stage{minor: kepMinor, level: "alpha"}, v.knowsNodeLease()
	}
	return gateHistories[name].at(v)
}

// gates is a set of feature gates as somebody set them. AllAlpha and AllBeta
// count for the gates that are not set by name.
type gates map[string]bool

// on: is the feature on, by name, by its group or by default?
func (g gates) on(name string, v Version) bool {
	if set, ok := g[name]; ok {
		return set
	}
	s, known := gateStage(name, v)
	if !known {
		return false
	}
	for group, level := range map[string]string{"AllAlpha": "alpha", "AllBeta": "beta"} {
		if set, ok := g[group]; ok && s.level == level {
			return set
		}
	}
	return s.on
}

// wrong says, gate by gate, why a kubelet would refuse to set it.
func (g gates) wrong(v Version) map[string]string {
	bad := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		s, known := gateStage(name, v)
		switch {
		case !known && name == NodeLeaseGate:
			bad[name] = fmt.Sprintf("kubelet %s has no such feature gate; it comes with 1.38, so leave it out here", v)
		case !known && v.minor < loaderMinor && gateHistories[name].stages == nil:
			bad[name] = fmt.Sprintf("is not a feature gate of kubelet %s as far as 1.37.2 remembers; unless that kubelet still had it, correct the name or leave it out", v)
		case !known:
			bad[name] = fmt.Sprintf("kubelet %s has no such feature gate; correct the name or leave it out", v)
		case s.locked && s.on != g[name]:
			bad[name] = fmt.Sprintf("is locked to %t and cannot be %t; leave it out", s.on, g[name])
		}
	}
	if len(bad) > 0 {
		return bad
	}
	for name, h := range gateHistories {
		if missing := g.missing(h, v); len(missing) > 0 && g.on(name, v) {
			bad[name] = fmt.Sprintf("is on, but needs %s, which is off", strings.Join(missing, ", "))
		}
	}
	return bad
}

// missing lists the gates that h needs and that are off.
func (g gates) missing(h gateHistory, v Version) []string {
	var off []string
	for _, name := range h.needs {
		if !g.on(name, v) {
			off = append(off, name)
		}
	}
	return off
}

// over is g with every gate of top set on top of it.
func (g gates) over(top gates) gates {
	out := gates{}
	maps.Copy(out, g)
	maps.Copy(out, top)
	return out
}
