package webhook

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewarden/nodewarden/contract"
)

// Description is what docs/metrics.md says about one metric.
type Description struct {
	// Name is the full name, Kind counter, gauge or histogram.
	Name, Kind string
	// Labels are the label names, in order.
	Labels []string
	Help   string
}

var (
	reviewsTotal = Description{
		"nodewarden_webhook_reviews_total", "counter", []string{"verdict", "writer_class", "dry_run"},
		"Admission reviews answered, by verdict (admitted, warned, refused, out_of_scope), class of the writer (kubelet, lifecycle, external, none) and whether the write was a dry run.",
	}
	violationsTotal = Description{
		"nodewarden_webhook_violations_total", "counter", []string{"rule", "action", "writer"},
		"Rules of the contract broken by real writes (dry runs left out), by rule, what the policy did about it (deny, warn, audit) and the writer; writers beyond the first 50 count as other.",
	}
	durationSeconds = Description{
		"nodewarden_webhook_review_duration_seconds", "histogram", nil,
		"Time from a review's headers to its answer, in seconds.",
	}
	skewTotal = Description{
		"nodewarden_webhook_skew_writes_total", "counter", []string{"liveness_source"},
		"Writes of reason NodeStatusUnknown by a lifecycle identity other than nodewarden's controller, by the liveness source that the policy file declares. With external, a kube-controller-manager still runs in kubelet mode.",
	}
	badTotal = Description{
		"nodewarden_webhook_bad_requests_total", "counter", []string{"reason"},
		"Requests that could not be read as a review. They are never refusals.",
	}
	overloadedTotal = Description{
		"nodewarden_webhook_overloaded_total", "counter", nil,
		"Reviews turned away because too many were in flight, or too large together.",
	}
	panicsTotal = Description{
		"nodewarden_webhook_panics_total", "counter", nil,
		"Panics caught while answering a review. Each is a defect.",
	}
	inFlight = Description{
		"nodewarden_webhook_in_flight_reviews", "gauge", nil,
		"Reviews being answered right now.",
	}
	certificateExpiry = Description{
		"nodewarden_webhook_certificate_expiry_timestamp_seconds", "gauge", nil,
		"When the serving certificate in use expires, in seconds since 1970; 0 until one is loaded.",
	}
	certificateLifetime = Description{
		"nodewarden_webhook_certificate_lifetime_seconds", "gauge", nil,
		"For how long the serving certificate in use is valid altogether, from its beginning to its end, in seconds; 0 until one is loaded.",
	}
	certificateErrors = Description{
		"nodewarden_webhook_certificate_reload_errors_total", "counter", nil,
		"Changes of the certificate files that were ignored because the files could not be used.",
	}
	certificateUnusable = Description{
		"nodewarden_webhook_certificate_files_unusable", "gauge", nil,
		"1 as long as the certificate files cannot be used, so that the server goes on with what it loaded before, if anything; else 0.",
	}
)

// Describe returns every metric of this package, in the order of docs/metrics.md.
func Describe() []Description {
	return []Description{
		reviewsTotal, violationsTotal, durationSeconds, skewTotal, badTotal,
		overloadedTotal, panicsTotal, inFlight, certificateExpiry, certificateLifetime, certificateErrors, certificateUnusable,
	}
}

// verdict is how a review was answered. The values are public: they label metrics.
type verdict string

const (
	admitted   verdict = "admitted"
	warned     verdict = "warned"
	refused    verdict = "refused"
	outOfScope verdict = "out_of_scope"
)

// noClass is the writer class of a review about something else than a Node's
// status: nobody asked who wrote.
const noClass contract.Class = "none"

// badReason is why a request was not a review. The values are public: they
// label metrics.
type badReason string

const (
	badMethod      badReason = "method"
	badClient      badReason = "client_certificate"
	badContentType badReason = "content_type"
	badEncoding    badReason = "content_encoding"
	badLength      badReason = "too_large"
	badBody        badReason = "unreadable_body"
	badReview      badReason = "malformed"
)

// Metrics counts what the webhook does. A Metrics belongs to one registry;
// tests make their own.
type Metrics struct {
	reviews    *prometheus.CounterVec
	violations *prometheus.CounterVec
	duration   prometheus.Histogram
	skew       prometheus.Counter
	bad        *prometheus.CounterVec
	overloaded prometheus.Counter
	panics     prometheus.Counter
	inFlight   prometheus.Gauge
	expiry     prometheus.Gauge
	lifetime   prometheus.Gauge
	badPairs   prometheus.Counter
	unusable   prometheus.Gauge

	writers *writers
}

// NewMetrics returns Metrics registered with r, for a webhook made of o.
// Listed detectors keep a label of their own, however many other writers come
// before them.
func NewMetrics(r prometheus.Registerer, o Options) *Metrics {
	skew := counters(skewTotal)
	m := &Metrics{
		reviews: counters(reviewsTotal), violations: counters(violationsTotal), bad: counters(badTotal),
		skew: skew.WithLabelValues(o.LivenessSource), overloaded: counter(overloadedTotal), panics: counter(panicsTotal), badPairs: counter(certificateErrors),
		inFlight: gauge(inFlight), expiry: gauge(certificateExpiry), lifetime: gauge(certificateLifetime), unusable: gauge(certificateUnusable),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: durationSeconds.Name, Help: durationSeconds.Help,
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, .25, 1, 3},
		}),
		writers: newWriters(detectors(o.Policy)),
	}
	r.MustRegister(m.reviews, m.violations, m.duration, skew, m.bad, m.overloaded, m.panics, m.inFlight, m.expiry, m.lifetime, m.badPairs, m.unusable)
	m.startAtZero()
	return m
}

func counters(d Description) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func counter(d Description) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.Help})
}

func gauge(d Description) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: d.Name, Help: d.Help})
}

// startAtZero makes the series that an alert may ask for: a rate over a series
// that was born at 1 misses the first event.
func (m *Metrics) startAtZero() {
	for _, dry := range []string{"false", "true"} {
		for _, class := range contract.Classes() {
			m.reviews.WithLabelValues(string(admitted), string(class), dry)
		}
		for _, v := range []verdict{warned, refused} {
			m.reviews.WithLabelValues(string(v), string(contract.External), dry)
		}
	}
	for _, reason := range []badReason{badMethod, badClient, badContentType, badEncoding, badLength, badBody, badReview} {
		m.bad.WithLabelValues(string(reason))
	}
}

// answered counts one review.
func (m *Metrics) answered(v verdict, class contract.Class, dryRun bool) {
	dry := "false"
	if dryRun {
		dry = "true"
	}
	m.reviews.WithLabelValues(string(v), string(class), dry).Inc()
}

// broke counts the rules that one real write broke.
func (m *Metrics) broke(broken []contract.Violation, by contract.User) {
	if len(broken) == 0 {
		return
	}
	writer := m.writers.label(by)
	for _, v := range broken {
		m.violations.WithLabelValues(string(v.Rule), string(v.Action), writer).Inc()
	}
}

func (m *Metrics) skewed()                       { m.skew.Inc() }
func (m *Metrics) couldNotRead(reason badReason) { m.bad.WithLabelValues(string(reason)).Inc() }
func (m *Metrics) turnedAway()                   { m.overloaded.Inc() }
func (m *Metrics) panicked()                     { m.panics.Inc() }
func (m *Metrics) took(d time.Duration)          { m.duration.Observe(d.Seconds()) }
func (m *Metrics) ignoredPair()                  { m.badPairs.Inc() }
func (m *Metrics) filesUsable()                  { m.unusable.Set(0) }
func (m *Metrics) filesUnusable()                { m.unusable.Set(1) }

// showing tells of the certificate in use.
func (m *Metrics) showing(c *x509.Certificate) {
	m.expiry.Set(float64(c.NotAfter.Unix()))
	m.lifetime.Set(c.NotAfter.Sub(c.NotBefore).Seconds())
}

func detectors(p contract.Policy) []contract.Identity {
	ids := make([]contract.Identity, len(p.Detectors))
	for i, d := range p.Detectors {
		ids[i] = d.Identity
	}
	return ids
}
