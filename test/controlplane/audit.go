package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// DefaultAuditPolicy records writes of nodes, pod statuses and bindings with
// both bodies and every other request to a resource without; requests for
// health, metrics and discovery are left out.
func DefaultAuditPolicy() *auditv1.Policy {
	return &auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived},
		Rules: []auditv1.PolicyRule{{
			Level: auditv1.LevelRequestResponse,
			Verbs: []string{"create", "update", "patch", "delete"},
			Resources: []auditv1.GroupResources{{
				Resources: []string{"nodes", "nodes/status", "pods/status", "pods/binding", "bindings"},
			}},
		}, {
			Level:           auditv1.LevelNone,
			NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*", "/metrics*", "/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version"},
		}, {
			Level: auditv1.LevelMetadata,
		}},
	}
}

func auditPolicy(o Options) ([]byte, error) {
	policy := o.AuditPolicy
	if policy == nil {
		policy = DefaultAuditPolicy()
		policy.Rules = append(slices.Clone(o.AuditRules), policy.Rules...)
	}
	return yaml.Marshal(policy)
}

// AuditLog is the file that the API server writes its audit events to.
func (cp *ControlPlane) AuditLog() string { return filepath.Join(cp.dir, "audit.log") }

// AuditFilter selects audit events. Empty fields match everything.
type AuditFilter struct {
	// User is the authenticated user, or the one that it impersonated.
	User        string
	Verbs       []string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	// Since leaves out events that arrived earlier, by the API server's clock.
	Since time.Time
	// Where, if set, decides about what the other fields let through.
	Where func(auditv1.Event) bool
}

// Matches reports whether f selects e.
func (f AuditFilter) Matches(e auditv1.Event) bool {
	ref := auditv1.ObjectReference{}
	if e.ObjectRef != nil {
		ref = *e.ObjectRef
	}
	return anyOr(f.User, AuditUser(e)) &&
		(len(f.Verbs) == 0 || slices.Contains(f.Verbs, e.Verb)) &&
		anyOr(f.Resource, ref.Resource) &&
		anyOr(f.Subresource, ref.Subresource) &&
		anyOr(f.Namespace, ref.Namespace) &&
		anyOr(f.Name, ref.Name) &&
		!e.RequestReceivedTimestamp.Time.Before(f.Since) &&
		(f.Where == nil || f.Where(e))
}

func anyOr(want, got string) bool { return want == "" || want == got }

// AuditUser is who acted in e: the impersonated user where there is one.
func AuditUser(e auditv1.Event) string {
	if e.ImpersonatedUser != nil {
		return e.ImpersonatedUser.Username
	}
	return e.User.Username
}

// Audit returns the audit events so far that f selects, in the order in which
// the API server wrote them. An event is written just after its response, so a
// caller that looks for its own request should use AwaitAudit.
func (cp *ControlPlane) Audit(f AuditFilter) ([]auditv1.Event, error) {
	file, err := os.Open(cp.AuditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readAudit(file, f)
}

func readAudit(from io.Reader, f AuditFilter) ([]auditv1.Event, error) {
	var events []auditv1.Event
	lines := bufio.NewReaderSize(from, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // a last line without its end is still being written
		}
		if err != nil {
			return nil, err
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("audit log, line %d: %w", n, err)
		}
		if f.Matches(e) {
			events = append(events, e)
		}
	}
}

// AwaitAudit waits until f selects at least n events and returns them all.
func (cp *ControlPlane) AwaitAudit(ctx context.Context, f AuditFilter, n int) ([]auditv1.Event, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		events, err := cp.Audit(f)
		if err != nil || len(events) >= n {
			return events, err
		}
		select {
		case <-ctx.Done():
			return events, fmt.Errorf("the audit log has %d of %d events (%w)", len(events), n, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
