package controller

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
	"github.com/nodewarden/nodewarden/controller/zone"
)

// Metrics counts what the controller does, under the names that dashboards of the
// in-tree controller use where it does the same. A Metrics belongs to one
// registry; tests make their own.
type Metrics struct {
	evictions  *evictions
	look       prometheus.Histogram
	pass       prometheus.Histogram
	source     *prometheus.GaugeVec
	overruns   prometheus.Counter
	podsMarked prometheus.Counter
	podsFailed prometheus.Counter
	reaction   prometheus.Histogram
	unleased   prometheus.Gauge
	registry   prometheus.Registerer
}

// NewMetrics registers the metrics with a registry.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		registry:  r,
		evictions: &evictions{counts: map[string]float64{}},
		look: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "node_collector_update_node_health_duration_seconds",
			Help:    "How long it took to look at one node and to write what came of it.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		pass: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "node_collector_update_all_nodes_health_duration_seconds",
			Help:    "How long one pass over all nodes took that looks for missed changes.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		}),
		source: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "node_collector_liveness_source",
			Help: "1 for each configured source of node liveness.",
		}, []string{"source"}),
		overruns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewarden_controller_pass_overruns_total",
			Help: "Passes over all nodes that took longer than the node monitor period.",
		}),
		podsMarked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewarden_controller_pods_marked_total",
			Help: "Pods made NotReady because their node was down.",
		}),
		podsFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewarden_controller_pod_mark_failures_total",
			Help: "Attempts to make a pod NotReady that failed and will be repeated.",
		}),
		reaction: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nodewarden_controller_reaction_seconds",
			Help:    "Time from the watch event that showed a node Unknown to the write of its last pod.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		unleased: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodewarden_controller_unleased_nodes",
			Help: "Nodes on the kubelet source that report their status and renew no Lease. They will flap between Unknown and Ready.",
		}),
	}
	r.MustRegister(m.look, m.pass, m.source, m.overruns, m.podsMarked, m.podsFailed, m.reaction, m.unleased)
	return m
}

// Sources says which sources are configured.
func (m *Metrics) Sources(sources []lifecycle.Source) {
	for _, s := range sources {
		m.source.WithLabelValues(string(s)).Set(1)
	}
}

// Evicted counts one node that was given its NoExecute taint in its turn.
func (m *Metrics) Evicted(zone string) { m.evictions.add(zone, 1) }

// ZoneSeen makes the count of a zone start at 0 rather than at 1.
func (m *Metrics) ZoneSeen(zone string) { m.evictions.add(zone, 0) }

// Looked notes how long one look at a node took.
func (m *Metrics) Looked(took time.Duration) { m.look.Observe(took.Seconds()) }

// Passed notes how long a pass took that may take so long.
func (m *Metrics) Passed(took, allowed time.Duration) {
	m.pass.Observe(took.Seconds())
	if took > allowed {
		m.overruns.Inc()
	}
}

// PodMarked counts one pod made NotReady.
func (m *Metrics) PodMarked() { m.podsMarked.Inc() }

// PodFailed counts one attempt at that which failed.
func (m *Metrics) PodFailed() { m.podsFailed.Inc() }

// Reacted notes the time from the news of a failure to the last pod.
func (m *Metrics) Reacted(took time.Duration) { m.reaction.Observe(took.Seconds()) }

// Unleased says how many nodes report without a Lease.
func (m *Metrics) Unleased(nodes int) { m.unleased.Set(float64(nodes)) }

// CacheAge exports how old the cache of nodes may be, asked on every scrape.
func (m *Metrics) CacheAge(age func() time.Duration) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodewarden_controller_node_cache_age_seconds",
		Help: "Time since the cache of nodes was last known to be current. Pods are not marked while it is more than a few node monitor periods.",
	}, func() float64 { return age().Seconds() }))
}

// Zones exports the figures of all zones, asked on every scrape: a zone that is
// gone has no series.
func (m *Metrics) Zones(figures func() []zone.Figure) {
	m.registry.MustRegister(zoneCollector{figures, m.evictions})
}

// evictions counts by zone. Labels of nodes make zones, so a count that outlived
// its zone would let whoever labels a node make any number of series.
type evictions struct {
	mu     sync.Mutex
	counts map[string]float64
}

func (e *evictions) add(zone string, n float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[zone] += n
}

// of returns the counts of the zones that there are and forgets all others.
func (e *evictions) of(there []zone.Figure) map[string]float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := make(map[string]float64, len(there))
	for _, f := range there {
		if n, seen := e.counts[f.Zone]; seen {
			kept[f.Zone] = n
		}
	}
	e.counts = kept
	return maps.Clone(kept)
}

type zoneCollector struct {
	figures   func() []zone.Figure
	evictions *evictions
}

var (
	zoneEvictions = prometheus.NewDesc("node_collector_evictions_total", "Nodes tainted NoExecute because they were down, by zone. Swaps between the two taints are not counted.", []string{"zone"}, nil)

	zoneHealth = prometheus.NewDesc("node_collector_zone_health", "Share of the counted nodes of a zone that are Ready, in percent.", []string{"zone"}, nil)
	zoneSize   = prometheus.NewDesc("node_collector_zone_size", "Counted nodes of a zone.", []string{"zone"}, nil)
	zoneDown   = prometheus.NewDesc("node_collector_unhealthy_nodes_in_zone", "Counted nodes of a zone that are not Ready.", []string{"zone"}, nil)
	zoneState  = prometheus.NewDesc("nodewarden_controller_zone_state", "1 for the state a zone is in.", []string{"zone", "state"}, nil)
	zoneRate   = prometheus.NewDesc("nodewarden_controller_zone_eviction_rate", "Nodes per second of a zone that may be tainted NoExecute.", []string{"zone"}, nil)
	zoneQueue  = prometheus.NewDesc("nodewarden_controller_zone_waiting_nodes", "Nodes of a zone that are down and wait for their turn to be tainted NoExecute.", []string{"zone"}, nil)
)

// Describe names what Collect gives.
func (c zoneCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{zoneEvictions, zoneHealth, zoneSize, zoneDown, zoneState, zoneRate, zoneQueue} {
		ch <- d
	}
}

// Collect asks for the figures of this moment.
func (c zoneCollector) Collect(ch chan<- prometheus.Metric) {
	figures := c.figures()
	for zone, n := range c.evictions.of(figures) {
		ch <- prometheus.MustNewConstMetric(zoneEvictions, prometheus.CounterValue, n, zone)
	}
	for _, f := range figures {
		gauge := func(d *prometheus.Desc, v float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{f.Zone}, more...)...)
		}
		gauge(zoneHealth, f.Percent())
		gauge(zoneSize, float64(f.Counted))
		gauge(zoneDown, float64(f.Down))
		gauge(zoneState, 1, string(f.State))
		gauge(zoneRate, float64(f.Rate))
		gauge(zoneQueue, float64(f.Waiting))
	}
}
