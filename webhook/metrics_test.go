package webhook

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
)

// TestMetricsReadAsDocumented tells a short story and compares every line of
// what Prometheus would scrape, save the buckets of the histogram.
func TestMetricsReadAsDocumented(t *testing.T) {
	o := DefaultOptions(contract.Default(contract.Enforce))
	o.LivenessSource = "kubelet"
	w := handlerOf(o)
	reserved := changed(func(c *corev1.NodeCondition) { c.Reason = "NodeStatusUnknown" })
	dry := update(reserved, reviews.Detector)
	*dry.Request.DryRun = true
	for _, r := range []*admissionv1.AdmissionReview{
		update(failed, reviews.Detector), update(reserved, reviews.Detector), dry,
		update(reserved, user("system:node:n1", "system:nodes")), update(reserved, user("system:node:n2", "system:nodes")),
		update(reserved, user("system:kube-controller-manager")),
	} {
		w.answerTo(t, reviews.Body(r))
	}
	w.post([]byte("garbage"))
	if err := testutil.GatherAndCompare(w.registry, strings.NewReader(story), names()...); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(w.registry, durationSeconds.Name); n != 1 || err != nil {
		t.Errorf("%d histograms, %v", n, err)
	}
}

// names are the names of all metrics but the histogram, whose buckets would
// tell nothing here.
func names() []string {
	var n []string
	for _, d := range Describe() {
		if d.Kind != "histogram" {
			n = append(n, d.Name)
		}
	}
	return n
}

const story = `# HELP nodewarden_webhook_bad_requests_total Requests that could not be read as a review. They are never refusals.
# TYPE nodewarden_webhook_bad_requests_total counter
nodewarden_webhook_bad_requests_total{reason="client_certificate"} 0
nodewarden_webhook_bad_requests_total{reason="content_encoding"} 0
nodewarden_webhook_bad_requests_total{reason="content_type"} 0
nodewarden_webhook_bad_requests_total{reason="malformed"} 1
nodewarden_webhook_bad_requests_total{reason="method"} 0
nodewarden_webhook_bad_requests_total{reason="too_large"} 0
nodewarden_webhook_bad_requests_total{reason="unreadable_body"} 0
# HELP nodewarden_webhook_certificate_expiry_timestamp_seconds When the serving certificate in use expires, in seconds since 1970; 0 until one is loaded.
# TYPE nodewarden_webhook_certificate_expiry_timestamp_seconds gauge
nodewarden_webhook_certificate_expiry_timestamp_seconds 0
# HELP nodewarden_webhook_certificate_files_unusable 1 as long as the certificate files cannot be used, so that the server goes on with what it loaded before, if anything; else 0.
# TYPE nodewarden_webhook_certificate_files_unusable gauge
nodewarden_webhook_certificate_files_unusable 0
# HELP nodewarden_webhook_certificate_lifetime_seconds For how long the serving certificate in use is valid altogether, from its beginning to its end, in seconds; 0 until one is loaded.
# TYPE nodewarden_webhook_certificate_lifetime_seconds gauge
nodewarden_webhook_certificate_lifetime_seconds 0
# HELP nodewarden_webhook_certificate_reload_errors_total Changes of the certificate files that were ignored because the files could not be used.
# TYPE nodewarden_webhook_certificate_reload_errors_total counter
nodewarden_webhook_certificate_reload_errors_total 0
# HELP nodewarden_webhook_in_flight_reviews Reviews being answered right now.
# TYPE nodewarden_webhook_in_flight_reviews gauge
nodewarden_webhook_in_flight_reviews 0
# HELP nodewarden_webhook_overloaded_total Reviews turned away because too many were in flight, or too large together.
# TYPE nodewarden_webhook_overloaded_total counter
nodewarden_webhook_overloaded_total 0
# HELP nodewarden_webhook_panics_total Panics caught while answering a review. Each is a defect.
# TYPE nodewarden_webhook_panics_total counter
nodewarden_webhook_panics_total 0
# HELP nodewarden_webhook_reviews_total Admission reviews answered, by verdict (admitted, warned, refused, out_of_scope), class of the writer (kubelet, lifecycle, external, none) and whether the write was a dry run.
# TYPE nodewarden_webhook_reviews_total counter
nodewarden_webhook_reviews_total{dry_run="false",verdict="admitted",writer_class="external"} 1
nodewarden_webhook_reviews_total{dry_run="false",verdict="admitted",writer_class="kubelet"} 1
nodewarden_webhook_reviews_total{dry_run="false",verdict="admitted",writer_class="lifecycle"} 1
nodewarden_webhook_reviews_total{dry_run="false",verdict="refused",writer_class="external"} 2
nodewarden_webhook_reviews_total{dry_run="false",verdict="warned",writer_class="external"} 0
nodewarden_webhook_reviews_total{dry_run="true",verdict="admitted",writer_class="external"} 0
nodewarden_webhook_reviews_total{dry_run="true",verdict="admitted",writer_class="kubelet"} 0
nodewarden_webhook_reviews_total{dry_run="true",verdict="admitted",writer_class="lifecycle"} 0
nodewarden_webhook_reviews_total{dry_run="true",verdict="refused",writer_class="external"} 1
nodewarden_webhook_reviews_total{dry_run="true",verdict="warned",writer_class="external"} 0
# HELP nodewarden_webhook_skew_writes_total Writes of reason NodeStatusUnknown by a lifecycle identity other than nodewarden's controller, by the liveness source that the policy file declares. With external, a kube-controller-manager still runs in kubelet mode.
# TYPE nodewarden_webhook_skew_writes_total counter
nodewarden_webhook_skew_writes_total{liveness_source="kubelet"} 1
# HELP nodewarden_webhook_violations_total Rules of the contract broken by real writes (dry runs left out), by rule, what the policy did about it (deny, warn, audit) and the writer; writers beyond the first 50 count as other.
# TYPE nodewarden_webhook_violations_total counter
nodewarden_webhook_violations_total{action="deny",rule="ReservedReason",writer="monitoring/detector"} 1
nodewarden_webhook_violations_total{action="deny",rule="ReservedReason",writer="system:node:*"} 1
`

func TestEveryMetricIsDescribed(t *testing.T) {
	w := enforcing()
	described := map[string]Description{}
	for _, d := range Describe() {
		described[d.Name] = d
	}
	w.metrics.broke([]contract.Violation{{Rule: contract.ReadyMissing, Action: contract.Deny}}, contract.User{})
	families, err := w.registry.Gather()
	if err != nil || len(families) != len(described) {
		t.Fatalf("%d families, %d described, %v", len(families), len(described), err)
	}
	for _, f := range families {
		d, ok := described[f.GetName()]
		if !ok || d.Help != f.GetHelp() || !strings.EqualFold(d.Kind, f.GetType().String()) || len(d.Labels) != len(f.GetMetric()[0].GetLabel()) {
			t.Errorf("%s is described as %+v, and is %s with %d labels", f.GetName(), d, f.GetType(), len(f.GetMetric()[0].GetLabel()))
		}
	}
}

// TestHostileRequestsDoNotGrowMetrics sends what a hostile client can make up.
func TestHostileRequestsDoNotGrowMetrics(t *testing.T) {
	o := DefaultOptions(contract.Default(contract.Enforce))
	o.Policy.Detectors = []contract.Detector{{Identity: contract.ServiceAccount("monitoring", "detector")}}
	w := handlerOf(o)
	before := w.lines()
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string { return fmt.Sprintf("%x-\u00e9\\n\\u0000%d", random.Uint64(), random.IntN(9)) }
	small := onlyReady(healthy)
	small.ObjectMeta.Labels, small.ObjectMeta.Annotations, small.Status.Images = nil, nil, nil
	for i := range 10_000 {
		after := small.DeepCopy()
		after.Name = word()
		ready := &after.Status.Conditions[0]
		ready.Status, ready.Reason, ready.Message = corev1.ConditionStatus(word()), word(), word()
		by := user([]string{"", "system:node:", "system:serviceaccount:", "system:serviceaccount:monitoring:"}[i%4]+word(), word())
		review := reviews.Update(small, after, by)
		if i%10 == 0 {
			review.Request.Operation, review.Request.Resource.Resource = admissionv1.Operation(word()), word()
		}
		w.post(reviews.Body(review))
	}
	rules, actions, writers := 3, 1, maxWriters+3 // StatusNotUnknown and the like; deny; and other, other kubelets, the detector
	if grown, most := w.lines()-before, rules*actions*writers+8; grown > most {
		t.Errorf("/metrics grew by %d lines, want at most %d", grown, most)
	}
	w.answerTo(t, reviews.Body(update(changed(func(c *corev1.NodeCondition) { c.Reason = "" }), reviews.Detector)))
	if n := testutil.ToFloat64(w.metrics.violations.WithLabelValues(string(contract.ReasonMissing), string(contract.Deny), "monitoring/detector")); n != 1 {
		t.Error("the listed detector lost its name to strangers")
	}
}

// lines is how many lines a scrape has.
func (w *workbench) lines() int {
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return strings.Count(rec.Body.String(), "\n")
}

func TestWriterLabelsAreShortAndOfValidText(t *testing.T) {
	for user, want := range map[string]string{
		"system:serviceaccount:monitoring:detector": "monitoring/detector",
		"system:node:n1":         "system:node:*",
		"alice@example.org":      "alice@example.org",
		"a\nb\xff\x00":           "a b ",
		strings.Repeat("é", 500): strings.Repeat("é", 46) + "...",
		"":                       "",
	} {
		if got := writerLabel(user); got != want || len(got) > maxWriterLabel {
			t.Errorf("%.20q is labelled %q, want %q", user, got, want)
		}
	}
}
