package certs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// granted are the rules that docs/certificates.md documents, for this scene's names.
func (s *scene) granted() []rbacv1.PolicyRule {
	s.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "certificates.md"))
	must(s.T, err)
	block := regexp.MustCompile("(?s)```yaml\n(# Rules of the webhook's account.*?)```").FindSubmatch(page)
	if block == nil {
		s.Fatal("docs/certificates.md documents no rules")
	}
	var rules []rbacv1.PolicyRule
	must(s.T, yaml.UnmarshalStrict(block[1], &rules))
	for i := range rules {
		if rules[i].Resources[0] == "validatingwebhookconfigurations" {
			rules[i].ResourceNames = []string{s.name}
		}
	}
	return rules
}

// TestTheAccountNeedsWhatIsDocumentedAndNoMore runs two replicas as an account
// that has the documented rules, makes them do everything, and reads the audit log.
func TestTheAccountNeedsWhatIsDocumentedAndNoMore(t *testing.T) {
	s := newScene(t)
	since := time.Now().Add(-time.Second)
	account := shared.ServiceAccount(s.name, "nodewarden-webhook")
	user := "system:serviceaccount:" + s.name + ":nodewarden-webhook"
	rules := s.granted()
	s.bind(rules)
	s.ready(s.replica(account), s.replica(account))
	s.configure()
	s.announced()
	s.shape(func(data map[string][]byte) { delete(data, "ca.key") })
	s.eventually("a new authority", func(context.Context) error {
		if len(s.secret().Data["ca.key"]) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	s.announced()
	s.showsSecret()

	used := map[string]bool{}
	events, err := shared.Audit(controlplane.AuditFilter{User: user, Since: since})
	must(t, err)
	for _, e := range events {
		if e.ResponseStatus != nil && e.ResponseStatus.Code == 403 {
			t.Errorf("forbidden: %s %s", e.Verb, e.RequestURI)
		}
		used[use(e)] = true
	}
	// An apply that creates is authorized as patch and, besides, as create.
	used["create secrets nodewarden-webhook-tls"] = true
	allowed := map[string]bool{}
	for _, r := range rules {
		for _, verb := range r.Verbs {
			allowed[fmt.Sprintf("%s %s %s", verb, r.Resources[0], r.ResourceNames[0])] = true
		}
	}
	for _, what := range slices.Sorted(maps.Keys(allowed)) {
		if !used[what] {
			t.Errorf("granted and never used: %s", what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(used)) {
		if !allowed[what] {
			t.Errorf("used and not granted: %s", what)
		}
	}
}

// use says what an audit event did, to which object.
func use(e auditv1.Event) string {
	if e.ObjectRef == nil {
		return e.Verb + " " + e.RequestURI
	}
	return fmt.Sprintf("%s %s %s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name)
}

func TestWithoutTheRightToCreateASecretAnEmptyOneIsFilled(t *testing.T) {
	s := newScene(t)
	rules := s.granted()
	for i := range rules {
		rules[i].Verbs = slices.DeleteFunc(rules[i].Verbs, func(v string) bool { return v == "create" })
	}
	s.bind(rules)
	r := s.replica(shared.ServiceAccount(s.name, "nodewarden-webhook"))
	s.eventually("the creation is refused", func(ctx context.Context) error {
		events, err := shared.Audit(controlplane.AuditFilter{User: "system:serviceaccount:" + s.name + ":nodewarden-webhook", Verbs: []string{"patch"}, Resource: "secrets"})
		if err != nil || len(events) == 0 || events[0].ResponseStatus.Code != 403 {
			return fmt.Errorf("%d events, %w", len(events), err)
		}
		return nil
	})
	_, err := s.admin.CoreV1().Secrets(s.name).Create(t.Context(), emptySecret(), metav1.CreateOptions{})
	must(t, err)
	s.ready(r)
	s.showsSecret()
}
