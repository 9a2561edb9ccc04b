package kubeletcfg

import (
	"cmp"
	"fmt"
	"slices"
)

// Outcome is what a kubelet does with something it was given. The strings are
// public: lint prints them, and scripts compare them.
type Outcome string

const (
	// Applied: it counts, but there is something to say about it.
	Applied Outcome = "applied"
	// IgnoredWithWarning: it does not count, and a log line says so.
	IgnoredWithWarning Outcome = "ignored with a warning"
	// IgnoredSilently: it does not count, and nobody says so.
	IgnoredSilently Outcome = "ignored silently"
	// WouldNotStart: the process ends before it has done anything.
	WouldNotStart Outcome = "would not start"
)

// Finding is one thing about the files that does not do what it says, or that
// keeps the kubelet from starting.
type Finding struct {
	Outcome Outcome `json:"outcome"`
	// Path is the field, such as featureGates.Foo; empty for a whole file.
	Path string `json:"path,omitempty"`
	// File as it was named in the input; empty for a flag.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 says that no line is to blame.
	Line int `json:"line,omitempty"`
	// Message names the value and says what to do about it.
	Message string `json:"message"`
	// Basis says how this is known.
	Basis Basis `json:"basis"`
}

// String is the finding as one line of text: where, outcome, what.
func (f Finding) String() string {
	where := Origin{File: f.File, Line: f.Line}.String()
	if f.Path != "" {
		return fmt.Sprintf("%s: %s: %s: %s", where, f.Outcome, f.Path, f.Message)
	}
	return fmt.Sprintf("%s: %s: %s", where, f.Outcome, f.Message)
}

// Origin is where a value was written.
type Origin struct {
	// File as it was named in the input; empty for a default.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 where there are no lines, as in a flag.
	Line int `json:"line,omitempty"`
}

// FlagOrigin marks values that came from the command line.
var FlagOrigin = Origin{File: "--feature-gates"}

// String is file:line, or "default".
func (o Origin) String() string {
	switch {
	case o.File == "":
		return "default"
	case o.Line == 0:
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// sortFindings puts what stops the kubelet first, then goes by place.
func sortFindings(fs []Finding) {
	rank := map[Outcome]int{WouldNotStart: 0, IgnoredSilently: 1, IgnoredWithWarning: 2, Applied: 3}
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(rank[a.Outcome], rank[b.Outcome]),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
