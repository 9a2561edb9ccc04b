package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// show sends r and prints it, and its answer, as kubectl would.
func (s *story) show(ctx context.Context, r request) error {
	kind := r.kind
	if kind == "" {
		kind = "strategic"
	}
	s.say("$ kubectl patch node %s --subresource=status --type=%s -p '%s'", r.node, kind, r.body)
	err := s.attempt(ctx, r)
	switch status := apierrors.APIStatus(nil); {
	case err == nil:
		s.say("node/%s patched", r.node)
	case errors.As(err, &status):
		s.say("Error from server (%s): %s", status.Status().Reason, status.Status().Message)
	default:
		s.say("%v", err)
	}
	return err
}

// refused sends r and expects exactly these rules to refuse it.
func (s *story) refused(ctx context.Context, r request, want ...contract.Rule) error {
	err := s.show(ctx, r)
	if err == nil {
		return errors.New("it was admitted")
	}
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("it was answered with something else than a refusal: %w", err)
	}
	names := make([]string, len(want))
	for i, rule := range want {
		names[i] = string(rule)
	}
	if bracket := "[" + strings.Join(names, ",") + "]"; !strings.Contains(err.Error(), bracket) {
		return fmt.Errorf("want it refused for %s", bracket)
	}
	return nil
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
