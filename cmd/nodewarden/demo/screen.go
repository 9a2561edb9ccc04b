package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/contract"
)

func (s *story) title(text string) {
	s.step++
	_, _ = fmt.Fprintf(s.out, "\n%d. %s\n", s.step, text)
}

func (s *story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "   "+format+"\n", args...)
}

func (s *story) blank() { _, _ = fmt.Fprintln(s.out) }

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// request is one write by the detector to a node's status.
type request struct {
	node   string
	kind   string // of patch, as kubectl calls it; empty means strategic
	body   string
	dryRun bool
}

var patchTypes = map[string]types.PatchType{
	"":          types.StrategicMergePatchType,
	"strategic": types.StrategicMergePatchType,
	"merge":     types.MergePatchType,
	"json":      types.JSONPatchType,
}

// attempt sends r without a word.
func (s *story) attempt(ctx context.Context, r request) error {
	o := metav1.PatchOptions{}
	if r.dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	_, err := s.detector.CoreV1().Nodes().Patch(ctx, r.node, patchTypes[r.kind], []byte(r.body), o, "status")
	return err
}

// show lets kubectl send r as the detector, and prints the command and what
// kubectl printed.
func (s *story) show(ctx context.Context, r request) (string, error) {
	kind := r.kind
	if kind == "" {
		kind = "strategic"
	}
	s.say("$ kubectl patch node %s --subresource=status --type=%s -p '%s'", r.node, kind, r.body)
	out, err := s.cp.Kubectl(ctx, s.cp.ServiceAccount("liveness", "detector"), "patch", "node", r.node, "--subresource=status", "--type="+kind, "-p", r.body)
	for line := range strings.Lines(out) {
		s.say("%s", strings.TrimRight(line, "\n"))
	}
	return out, err
}

// refused shows r and expects exactly these rules to refuse it.
func (s *story) refused(ctx context.Context, r request, want ...contract.Rule) error {
	out, err := s.show(ctx, r)
	if err == nil {
		return errors.New("it was admitted")
	}
	if got := named(out); !slices.Equal(got, want) {
		return fmt.Errorf("want it refused for %v, got %v", want, got)
	}
	return nil
}

var bracket = regexp.MustCompile(`\[([A-Za-z,]+)\] `)

// named returns the rules that stand in brackets in what kubectl printed.
func named(out string) []contract.Rule {
	var rules []contract.Rule
	for _, found := range bracket.FindAllStringSubmatch(out, -1) {
		for _, name := range strings.Split(found[1], ",") {
			if r := contract.Rule(name); r.Known() {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// entry is a strategic merge patch of the Ready entry: a correct report of a
// failure, with some fields changed, or left out where they are nil.
func entry(stamp time.Time, changes map[string]any) string {
	fields := map[string]any{
		"type": "Ready", "status": "Unknown", "reason": "OutOfBandProbeFailed", "message": "no answer from 3 of 3 observers",
		"lastTransitionTime": stamp.UTC().Format(time.RFC3339),
	}
	for k, v := range changes {
		fields[k] = v
		if v == left {
			delete(fields, k)
		}
	}
	return `{"status":{"conditions":[` + ordered(fields) + `]}}`
}

// left marks a field that is left out of an entry.
var left = struct{ out string }{"left out"}

// ordered prints the fields in the order in which people write them.
func ordered(fields map[string]any) string {
	var parts []string
	order := []string{"type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"}
	for _, k := range order {
		if v, ok := fields[k]; ok {
			text, _ := json.Marshal(v) // strings and nil always marshal
			parts = append(parts, fmt.Sprintf("%q:%s", k, text))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// table prints rows in columns.
func (s *story) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
		}
		s.say("%s", strings.TrimRight(b.String(), " "))
	}
}
