package kubeletcfg

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Report is what a kubelet would make of its files.
type Report struct {
	// KubeletVersion as it was given, and what the verdicts rest on.
	KubeletVersion string `json:"kubeletVersion"`
	Basis          Basis  `json:"basis"`
	// Starts: does the kubelet get as far as running with this configuration?
	Starts bool `json:"starts"`
	// Read names the files in the order the kubelet reads them.
	Read     []string  `json:"read"`
	Findings []Finding `json:"findings"`
	// Lease is the field and the gate it depends on, always together.
	Lease Lease `json:"lease"`
	// Values is the effective configuration; empty if nothing was decoded.
	Values []Value `json:"values"`
	// Config is the same as one document. It is not part of the JSON output.
	Config *Config `json:"-"`
}

// Lease says whether this kubelet keeps its Lease.
type Lease struct {
	Enabled bool `json:"enabled"`
	// From is where enableNodeLease comes from.
	From Origin `json:"from"`
	// Gate is ExternalNodeLivenessDetection, GateFrom where it comes from.
	Gate     bool   `json:"gate"`
	GateFrom Origin `json:"gateFrom"`
	// Known is false for kubelets without the field; they keep their Lease.
	Known bool `json:"known"`
}

// Value is one setting as the kubelet would use it.
type Value struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
	From  Origin `json:"from"`
	// Replaces are the places that set it first and lost.
	Replaces []Origin `json:"replaces,omitempty"`
}

// Clean: is everything applied, and is nothing worth a word?
func (r Report) Clean() bool { return len(r.Findings) == 0 }

// Lint says what a kubelet would make of its files. It reports everything it
// finds, not the first thing.
func Lint(in Input) Report {
	l := load(in)
	sortFindings(l.findings)
	r := Report{
		KubeletVersion: in.Version.String(), Basis: in.Version.Basis(),
		Starts: !l.stopped(), Read: l.order, Findings: l.findings, Config: l.config, Values: []Value{},
	}
	if l.config != nil {
		r.Values = l.values()
		r.Lease = l.lease()
	}
	return r
}

func (l *loading) lease() Lease {
	g := fieldPath{"featureGates", NodeLeaseGate}
	r := Lease{
		Known:   l.in.Version.knowsNodeLease(),
		Enabled: l.config.EnableNodeLease == nil || *l.config.EnableNodeLease,
		From:    l.originOf(fieldPath{nodeLeaseField}),
		Gate:    gates(l.config.FeatureGates).on(NodeLeaseGate, l.in.Version),
	}
	if _, set := l.config.FeatureGates[NodeLeaseGate]; set {
		r.GateFrom = l.gateOrigin(NodeLeaseGate, r.Gate, l.originOf(g))
	}
	return r
}

// gateOrigin: a flag wins over a file, so where both are there the value tells.
func (l *loading) gateOrigin(name string, on bool, file Origin) Origin {
	if flag, given := l.flags[name]; given && flag == on {
		return FlagOrigin
	}
	return file
}

// values lists the effective configuration, leaf by leaf.
func (l *loading) values() []Value {
	data, err := json.Marshal(l.config)
	if err != nil {
		return nil
	}
	doc, err := generic(data)
	if err != nil {
		return nil
	}
	var out []Value
	delete(doc, "apiVersion")
	delete(doc, "kind")
	leaves(doc, configType, nil, func(p fieldPath, v any) { out = append(out, l.value(p, v)) })
	return out
}

func (l *loading) value(p fieldPath, v any) Value {
	all := l.origins[p.key()]
	if len(p) == 2 && p[0] == "featureGates" {
		if _, flag := l.flags[p[1]]; flag {
			all = append(slices.Clone(all), FlagOrigin)
		}
	}
	out := Value{Path: p.String(), Value: v}
	if n := len(all); n > 0 {
		out.From, out.Replaces = all[n-1], all[:n-1]
	}
	return out
}

// leaves visits what is not a struct or a map of our schema, in order of path.
func leaves(value any, t reflect.Type, at fieldPath, visit func(fieldPath, any)) {
	m, isMap := value.(map[string]any)
	fields, elem := fieldsOf(t), elemOf(t)
	if !isMap || fields == nil && elem == nil {
		visit(at, value)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		child := elem
		if fields != nil {
			child = fields[key]
		}
		if child != nil {
			leaves(m[key], child, at.child(key), visit)
		}
	}
}

// String is the report as lint prints it.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kubelet %s: %s, %s (basis: %s)\n", r.KubeletVersion, r.verdict(), count(len(r.Findings), "finding"), r.Basis)
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %s\n", f)
		if f.Basis == FromKEP {
			fmt.Fprintf(&b, "    (from %s)\n", f.Basis)
		}
	}
	if len(r.Read) > 0 {
		fmt.Fprintf(&b, "read, in this order: %s\n", strings.Join(r.Read, ", "))
	}
	if r.Config != nil {
		r.writeValues(&b)
		fmt.Fprintf(&b, "%s\n", r.Lease)
	}
	return b.String()
}

func (r Report) verdict() string {
	if r.Starts {
		return "starts"
	}
	return "would not start"
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (r Report) writeValues(b *strings.Builder) {
	defaults := 0
	for _, v := range r.Values {
		if v.From.File == "" {
			defaults++
			continue
		}
		fmt.Fprintf(b, "  %s\n", v)
	}
	fmt.Fprintf(b, "  and %s at the default (-o json lists them)\n", count(defaults, "value"))
}

// String is the value as one line.
func (v Value) String() string {
	data, err := json.Marshal(v.Value)
	if err != nil {
		data = []byte(fmt.Sprint(v.Value))
	}
	line := fmt.Sprintf("%s: %s  # %s", v.Path, data, v.From)
	if len(v.Replaces) > 0 {
		var lost []string
		for _, o := range v.Replaces {
			lost = append(lost, o.String())
		}
		line += ", over " + strings.Join(lost, ", ")
	}
	return line
}

// String names the field and its gate together: one without the other does nothing.
func (l Lease) String() string {
	if !l.Known {
		return "Lease: kept; this kubelet has no enableNodeLease"
	}
	state := "kept"
	if !l.Enabled {
		state = "off"
	}
	return fmt.Sprintf("Lease: %s; enableNodeLease: %t (%s), featureGates.%s: %t (%s)",
		state, l.Enabled, l.From, NodeLeaseGate, l.Gate, l.GateFrom)
}
