package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics tell whether certificates are kept at all. What the server shows is
// among its own metrics.
type metrics struct {
	failures  prometheus.Counter
	lastSync  prometheus.Gauge
	authority prometheus.Gauge
}

// The metrics of this package, which exist only where certificates are
// self-managed.
var (
	syncFailures = prometheus.CounterOpts{
		Name: "nodewarden_webhook_certs_sync_failures_total",
		Help: "Attempts to keep Secret, caBundle and certificate in step that failed and will be repeated.",
	}
	syncedAt = prometheus.GaugeOpts{
		Name: "nodewarden_webhook_certs_sync_timestamp_seconds",
		Help: "When Secret, caBundle and certificate were last seen in step, in seconds since 1970.",
	}
	authorityExpiry = prometheus.GaugeOpts{
		Name: "nodewarden_webhook_certs_ca_expiry_timestamp_seconds",
		Help: "When the authority that signs the serving certificates expires, in seconds since 1970.",
	}
)

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{prometheus.NewCounter(syncFailures), prometheus.NewGauge(syncedAt), prometheus.NewGauge(authorityExpiry)}
	r.MustRegister(m.failures, m.lastSync, m.authority)
	return m
}

func (m *metrics) failed()                      { m.failures.Inc() }
func (m *metrics) inStep(now time.Time)         { m.lastSync.Set(float64(now.Unix())) }
func (m *metrics) authorityExpires(t time.Time) { m.authority.Set(float64(t.Unix())) }
