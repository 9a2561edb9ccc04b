package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
)

// bench is a handler with everything around it that a test looks at.
type workbench struct {
	*Handler
	registry *prometheus.Registry
	clock    *clocktesting.FakePassiveClock
	log      *lockedLog
}

type lockedLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *lockedLog) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *lockedLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

func handlerOf(o Options) *workbench {
	w := &workbench{registry: prometheus.NewRegistry(), clock: clocktesting.NewFakePassiveClock(reviews.Heartbeat), log: &lockedLog{}}
	log := funcr.New(w.log.add, funcr.Options{})
	w.Handler = NewHandler(o.Policy, NewMetrics(w.registry, o), log, w.clock, o.MaxInFlight)
	return w
}

func enforcing() *workbench { return handlerOf(DefaultOptions(contract.Default(contract.Enforce))) }

// post sends body as an API server would.
func (w *workbench) post(body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return w.send(r)
}

func (w *workbench) send(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

// answerTo posts body and returns the response in the review that comes back.
func (w *workbench) answerTo(t *testing.T, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	rec := w.post(body)
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	out := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	if out.APIVersion != reviewVersion || out.Kind != reviewKind {
		t.Errorf("answered as %s %s", out.APIVersion, out.Kind)
	}
	return out.Response
}

// node is a Ready node, and failed the same as a detector that keeps the
// contract records its failure.
var (
	healthy = reviews.Node("n1")
	failed  = reviews.Detect(healthy, reviews.Heartbeat.Add(time.Minute))
)

// changed is failed with something done to its Ready entry.
func changed(do func(*corev1.NodeCondition)) *corev1.Node {
	n := failed.DeepCopy()
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			do(c)
		}
	}
	return n
}

// onlyReady is n without its other conditions.
func onlyReady(n *corev1.Node) *corev1.Node {
	n = n.DeepCopy()
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })
	return n
}

func update(after *corev1.Node, by authenticationv1.UserInfo) *admissionv1.AdmissionReview {
	return reviews.Update(healthy, after, by)
}

func user(name string, groups ...string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name, Groups: groups}
}

func TestRequestsThatAreNoReviewsAreToldWhy(t *testing.T) {
	good := reviews.Body(update(failed, reviews.Detector))
	edit := func(old, new string) []byte { return bytes.Replace(good, []byte(old), []byte(new), 1) }
	big := bytes.Repeat([]byte(" "), MaxBody)
	for name, c := range map[string]struct {
		method, contentType, encoding string
		body                          io.Reader
		status                        int
		reason                        badReason
		says                          string
	}{
		"GET":                       {method: "GET", status: 405, reason: badMethod, says: "not POST"},
		"PUT":                       {method: "PUT", body: bytes.NewReader(good), status: 405, reason: badMethod, says: "PUT"},
		"YAML":                      {contentType: "application/yaml", body: bytes.NewReader(good), status: 415, reason: badContentType, says: "application/json"},
		"protobuf":                  {contentType: "application/vnd.kubernetes.protobuf", body: bytes.NewReader(good), status: 415, reason: badContentType, says: "protobuf"},
		"no content type":           {contentType: "-", body: bytes.NewReader(good), status: 415, reason: badContentType, says: `""`},
		"a compressed body":         {encoding: "gzip", body: bytes.NewReader(good), status: 415, reason: badEncoding, says: "gzip"},
		"an empty body":             {body: http.NoBody, status: 400, reason: badReview, says: "empty"},
		"a body that breaks off":    {body: io.MultiReader(bytes.NewReader(good[:100]), broken{}), status: 400, reason: badBody, says: "reading the body"},
		"a body that is too long":   {body: io.MultiReader(bytes.NewReader(good), bytes.NewReader(big)), status: 413, reason: badLength, says: "7340032"},
		"garbage":                   {body: strings.NewReader("{]"), status: 400, reason: badReview, says: "invalid character"},
		"half a review":             {body: bytes.NewReader(good[:len(good)/2]), status: 400, reason: badReview, says: "unexpected end"},
		"two reviews":               {body: bytes.NewReader(append(good[:len(good):len(good)], good...)), status: 400, reason: badReview, says: "after top-level value"},
		"a list":                    {body: strings.NewReader("[]"), status: 400, reason: badReview, says: reviewKind},
		"no kind":                   {body: strings.NewReader("{}"), status: 400, reason: badReview, says: "admission.k8s.io/v1"},
		"v1beta1":                   {body: bytes.NewReader(edit("admission.k8s.io/v1", "admission.k8s.io/v1beta1")), status: 400, reason: badReview, says: "admissionReviewVersions"},
		"another kind":              {body: bytes.NewReader(edit("AdmissionReview", "TokenReview")), status: 400, reason: badReview, says: "TokenReview"},
		"no request":                {body: strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), status: 400, reason: badReview, says: "no request"},
		"a null request":            {body: strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`), status: 400, reason: badReview, says: "no request"},
		"no uid":                    {body: bytes.NewReader(edit(`"uid":"705ab4f5-6393-11e8-b7cc-42010a800002"`, `"uid":""`)), status: 400, reason: badReview, says: "uid"},
		"no object":                 {body: bytes.NewReader(edit(`"object":`, `"x":`)), status: 400, reason: badReview, says: "request.object is missing"},
		"no old object":             {body: bytes.NewReader(edit(`"oldObject":`, `"x":`)), status: 400, reason: badReview, says: "request.oldObject is missing"},
		"an object that is no node": {body: bytes.NewReader(edit(`"object":`, `"object":7,"x":`)), status: 400, reason: badReview, says: "request.object is not a Node"},
	} {
		t.Run(name, func(t *testing.T) {
			w := enforcing()
			if c.method == "" {
				c.method = http.MethodPost
			}
			r := httptest.NewRequest(c.method, Path, c.body)
			if c.contentType == "" {
				c.contentType = "application/json; charset=utf-8"
			}
			if c.contentType != "-" {
				r.Header.Set("Content-Type", c.contentType)
			}
			if c.encoding != "" {
				r.Header.Set("Content-Encoding", c.encoding)
			}
			rec := w.send(r)
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.says) || rec.Body.Len() > 2*maxLogged {
				t.Errorf("answered %d %q, want %d with %q", rec.Code, rec.Body, c.status, c.says)
			}
			if n := testutil.ToFloat64(w.metrics.bad.WithLabelValues(string(c.reason))); n != 1 {
				t.Errorf("bad requests for %s: %v", c.reason, n)
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestABodyAnnouncedTooLongIsNotRead(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, Path, untouched{t})
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = MaxBody + 1
	if rec := enforcing().send(r); rec.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("answered %d", rec.Code)
	}
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("was read")
	return 0, io.EOF
}

func TestARefusalCarriesOneCauseARule(t *testing.T) {
	w := enforcing()
	bad := changed(func(c *corev1.NodeCondition) {
		c.Reason, c.LastHeartbeatTime = "NodeStatusUnknown", metav1.NewTime(reviews.Heartbeat.Add(time.Minute))
	})
	got := w.answerTo(t, reviews.Body(update(bad, reviews.Detector)))
	if got.Allowed || got.UID != "705ab4f5-6393-11e8-b7cc-42010a800002" {
		t.Errorf("allowed %v, uid %q", got.Allowed, got.UID)
	}
	s := got.Result
	if s == nil || s.Code != 422 || s.Reason != metav1.StatusReasonInvalid || s.Status != metav1.StatusFailure || s.Details == nil || s.Details.Name != "n1" {
		t.Fatalf("status %+v", s)
	}
	if want := "[ReservedReason,HeartbeatModified] status.conditions[Ready].reason "; !strings.HasPrefix(s.Message, want) {
		t.Errorf("message %q, want it to begin with %q", s.Message, want)
	}
	for i, want := range []struct{ rule, field string }{
		{"ReservedReason", "status.conditions[Ready].reason"}, {"HeartbeatModified", "status.conditions[Ready].lastHeartbeatTime"},
	} {
		if c := s.Details.Causes[i]; string(c.Type) != want.rule || c.Field != want.field || c.Message == "" {
			t.Errorf("cause %d is %+v, want %v", i, c, want)
		}
	}
	want := map[string]string{"rules": "ReservedReason,HeartbeatModified", "writer-class": "external"}
	if diff := cmp.Diff(want, got.AuditAnnotations); diff != "" {
		t.Errorf("audit annotations, -want +got:\n%s", diff)
	}
}

func TestWritesAreAnsweredByVerdictAndClass(t *testing.T) {
	reserved := changed(func(c *corev1.NodeCondition) { c.Reason = "NodeStatusUnknown" })
	skewed := changed(func(c *corev1.NodeCondition) { c.LastTransitionTime = metav1.NewTime(reviews.Heartbeat.Add(time.Hour)) })
	lifecycle := user("system:serviceaccount:kube-system:node-controller", "system:serviceaccounts:kube-system")
	ours := user("system:serviceaccount:nodewarden-system:nodewarden-controller", "system:serviceaccounts:nodewarden-system")
	as := func(edit func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionReview {
		r := update(reserved, reviews.Detector)
		edit(r.Request)
		return r
	}
	for name, c := range map[string]struct {
		review   *admissionv1.AdmissionReview
		profile  contract.Profile
		refused  bool
		verdict  verdict
		class    contract.Class
		rules    string
		warnings []string
		skew     float64
		lines    int
	}{
		"a detector that keeps the contract": {review: update(failed, reviews.Detector), verdict: admitted, class: contract.External},
		"a detector that breaks it":          {review: update(reserved, reviews.Detector), refused: true, verdict: refused, class: contract.External, rules: "ReservedReason", lines: 1},
		"the same in the warn profile":       {review: update(reserved, reviews.Detector), profile: contract.WarnOnly, verdict: warned, class: contract.External, rules: "ReservedReason", warnings: []string{"[ReservedReason] "}},
		"the same in the audit profile":      {review: update(reserved, reviews.Detector), profile: contract.AuditOnly, verdict: admitted, class: contract.External, rules: "ReservedReason"},
		"a warning":                          {review: update(skewed, reviews.Detector), verdict: warned, class: contract.External, rules: "ClockSkew", warnings: []string{"[ClockSkew] "}},
		"the node's own kubelet":             {review: update(reserved, user("system:node:n1", "system:nodes")), verdict: admitted, class: contract.Kubelet},
		"the kubelet of another node":        {review: update(reserved, user("system:node:n2", "system:nodes")), refused: true, verdict: refused, class: contract.External, rules: "ReservedReason", lines: 1},
		"a kubelet without its group":        {review: update(reserved, user("system:node:n1")), refused: true, verdict: refused, class: contract.External, rules: "ReservedReason", lines: 1},
		"the in-tree controller":             {review: update(reserved, lifecycle), verdict: admitted, class: contract.Lifecycle, skew: 1},
		"our controller":                     {review: update(reserved, ours), verdict: admitted, class: contract.Lifecycle},
		"a status write that leaves Ready":   {review: update(healthy, reviews.Detector), verdict: outOfScope, class: contract.External},
		"a node created with a status":       {review: reviews.Create(onlyReady(reserved), reviews.Detector), verdict: warned, class: contract.External, rules: "ReservedReason,HeartbeatModified", warnings: []string{"[ReservedReason] ", "[HeartbeatModified] "}},
		"a node created without one":         {review: reviews.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, reviews.Detector), verdict: outOfScope, class: contract.External},
		"unknown fields": {review: as(func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = bytes.Replace(r.Object.Raw, []byte(`"status":{`), []byte(`"status":{"newIn138":{"a":[1]},`), 1)
		}), refused: true, verdict: refused, class: contract.External, rules: "ReservedReason", lines: 1},
		"an empty old object":          {review: as(func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`{}`) }), refused: true, verdict: refused, class: contract.External, rules: "OtherConditionChanged,LabelsChanged,ReservedReason,HeartbeatModified", warnings: []string{"[OtherConditionChanged] ", "[LabelsChanged] "}, lines: 1},
		"an update of the node itself": {review: as(func(r *admissionv1.AdmissionRequest) { r.SubResource = "" }), verdict: outOfScope, class: noClass, warnings: []string{"UPDATE of nodes)"}},
		"a deletion":                   {review: as(func(r *admissionv1.AdmissionRequest) { r.Operation, r.SubResource, r.Object.Raw = "DELETE", "", nil }), verdict: outOfScope, class: noClass, warnings: []string{"DELETE of nodes)"}},
		"a connection": {review: as(func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.SubResource, r.OldObject.Raw = "CONNECT", "proxy", nil
		}), verdict: outOfScope, class: noClass, warnings: []string{"CONNECT of nodes/proxy)"}},
		"a pod": {review: as(func(r *admissionv1.AdmissionRequest) {
			r.Resource.Resource, r.Object.Raw = "pods", []byte(`{"status":[1]}`)
		}), verdict: outOfScope, class: noClass, warnings: []string{"UPDATE of pods/status)"}},
		"nodes of another version":         {review: as(func(r *admissionv1.AdmissionRequest) { r.Resource.Version = "v2" }), verdict: outOfScope, class: noClass, warnings: []string{"nodewarden does not judge"}},
		"nodes of another group":           {review: as(func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "metrics.k8s.io" }), verdict: outOfScope, class: noClass, warnings: []string{"nodewarden does not judge"}},
		"an operation made of line breaks": {review: as(func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Operation(strings.Repeat("\n", 4096)) }), verdict: outOfScope, class: noClass, warnings: []string{"nodewarden does not judge"}},
	} {
		for _, dryRun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dry run %t", name, dryRun), func(t *testing.T) {
				profile := c.profile
				if profile == "" {
					profile = contract.Enforce
				}
				o := DefaultOptions(contract.Default(profile))
				o.LivenessSource = "external"
				w := handlerOf(o)
				c.review.Request.DryRun = &dryRun
				got := w.answerTo(t, reviews.Body(c.review))
				if got.Allowed == c.refused || got.AuditAnnotations[AnnotationRules] != c.rules {
					t.Errorf("allowed %v with broken rules %q, want %v with %q", got.Allowed, got.AuditAnnotations[AnnotationRules], !c.refused, c.rules)
				}
				for i, want := range c.warnings {
					if i >= len(got.Warnings) || !strings.Contains(got.Warnings[i], want) {
						t.Errorf("warning %d in %q lacks %q", i, got.Warnings, want)
					}
				}
				for _, text := range got.Warnings {
					if len(text) > maxWarning || strings.ContainsAny(text, "\n\r") {
						t.Errorf("a warning of %d bytes that no header holds: %q", len(text), text)
					}
				}
				if len(got.Warnings) != len(c.warnings) {
					t.Errorf("%d warnings, want %d: %q", len(got.Warnings), len(c.warnings), got.Warnings)
				}
				if n := testutil.ToFloat64(w.metrics.reviews.WithLabelValues(string(c.verdict), string(c.class), fmt.Sprint(dryRun))); n != 1 {
					t.Errorf("not counted as %s by %s", c.verdict, c.class)
				}
				if dryRun {
					c.skew = 0
				}
				if n := testutil.CollectAndCount(w.metrics.violations); (n > 0) != (c.rules != "" && !dryRun) {
					t.Errorf("%d series of violations, with %q broken", n, c.rules)
				}
				if n := testutil.ToFloat64(w.metrics.skew); n != c.skew {
					t.Errorf("skew writes: %v, want %v", n, c.skew)
				}
				if lines := w.log.all(); len(lines) != c.lines {
					t.Errorf("%d log lines, want %d: %q", len(lines), c.lines, lines)
				}
			})
		}
	}
}

func TestTheLogLineOfARefusalNamesNodeWriterAndRules(t *testing.T) {
	w := enforcing()
	bad := changed(func(c *corev1.NodeCondition) { c.Reason = "" })
	w.answerTo(t, reviews.Body(update(bad, user("mallory\n"+strings.Repeat("x", 9000)))))
	lines := w.log.all()
	if len(lines) != 1 || len(lines[0]) > 1024 {
		t.Fatalf("log: %q", lines)
	}
	for _, want := range []string{`"msg"="refused a write to Ready"`, `"node"="n1"`, `"writer"="mallory `, `"rules"="ReasonMissing"`, `"dryRun"=false`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q is missing in %q", want, lines[0])
		}
	}
}

func TestAPanicCostsOneReview(t *testing.T) {
	w := enforcing()
	judge := w.review
	w.review = func(*review) answer { panic("defect") }
	body := reviews.Body(update(failed, reviews.Detector))
	if rec := w.post(body); rec.Code != http.StatusInternalServerError || strings.Contains(rec.Body.String(), "defect") {
		t.Errorf("answered %d %q", rec.Code, rec.Body)
	}
	if n := testutil.ToFloat64(w.metrics.panics); n != 1 {
		t.Errorf("panics counted: %v", n)
	}
	w.review = judge
	if !w.answerTo(t, body).Allowed {
		t.Error("the next review is refused")
	}
	if n := testutil.ToFloat64(w.metrics.inFlight); n != 0 {
		t.Errorf("%v in flight with nothing going on", n)
	}
}

func TestReviewsBeyondTheBoundAreTurnedAway(t *testing.T) {
	o := DefaultOptions(contract.Default(contract.Enforce))
	o.MaxInFlight = 2
	w := handlerOf(o)
	judge, entered, leave := w.review, make(chan struct{}), make(chan struct{})
	w.review = func(r *review) answer {
		entered <- struct{}{}
		<-leave
		return judge(r)
	}
	body := reviews.Body(update(failed, reviews.Detector))
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() { w.post(body) })
		<-entered
	}
	if n := testutil.ToFloat64(w.metrics.inFlight); n != 2 {
		t.Errorf("%v in flight, want 2", n)
	}
	rec := w.post(body)
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("answered %d with headers %v", rec.Code, rec.Header())
	}
	if n := testutil.ToFloat64(w.metrics.overloaded); n != 1 {
		t.Errorf("turned away: %v", n)
	}
	close(leave)
	busy.Wait()
	w.review = judge
	if rec := w.post(body); rec.Code != http.StatusOK {
		t.Errorf("answered %d once there was room again", rec.Code)
	}
}

func TestReviewsDoNotSeeEachOther(t *testing.T) {
	w := handlerOf(DefaultOptions(contract.Default(contract.Enforce)))
	w.log.lines = nil
	w.Handler.log = logr.Discard()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			node := reviews.Node(fmt.Sprintf("node-%d", i))
			after := reviews.Detect(node, reviews.Heartbeat.Add(time.Minute))
			wrong := i%2 == 0
			if wrong {
				after.Status.Conditions = append(after.Status.Conditions, after.Status.Conditions[len(after.Status.Conditions)-1])
			}
			body := reviews.Body(reviews.Update(node, after, reviews.Detector))
			for range 50 {
				got := w.answerTo(t, body)
				if got.Allowed == wrong || wrong && got.Result.Details.Name != node.Name {
					t.Errorf("%s: %+v", node.Name, got)
					return
				}
			}
		})
	}
	all.Wait()
}
