package freshness

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	stalledNodes = prometheus.NewDesc("nodewarden_stalled_nodes",
		"Nodes whose Ready is True or False although nobody has written it for longer than nodewarden_stalled_after_seconds.", nil, nil)
	namesSuppressed = prometheus.NewDesc("nodewarden_stalled_names_suppressed",
		"1 while more nodes are stalled than may be named (stalled.maxNamedNodes of the policy file), so that none is; else 0.", nil, nil)
	nodeStalled = prometheus.NewDesc("nodewarden_node_ready_stalled",
		"1 for each stalled node. last_writer is the field manager that wrote Ready last, a name that its client chose, or unrecorded.", []string{"node", "last_writer"}, nil)
	nodeAge = prometheus.NewDesc("nodewarden_node_ready_age_seconds",
		"Time since anybody wrote the Ready condition of a stalled node. Nodes that are not stalled have no series.", []string{"node", "last_writer"}, nil)
	longUnknownNodes = prometheus.NewDesc("nodewarden_long_unknown_nodes",
		"Nodes whose Ready has been Unknown for longer than nodewarden_stalled_after_seconds. Their failure is recorded as it should be; they are not stalled.", nil, nil)
	nodesWithoutReady = prometheus.NewDesc("nodewarden_nodes_without_ready",
		"Nodes that have no Ready condition.", nil, nil)
	watchedNodes = prometheus.NewDesc("nodewarden_watched_nodes",
		"Nodes that the figures are about.", nil, nil)
	stalledAfter = prometheus.NewDesc("nodewarden_stalled_after_seconds",
		"For how long Ready may go unwritten: stalled.afterPeriods times stalled.statusReportPeriod of the policy file.", nil, nil)
	writerLast = prometheus.NewDesc("nodewarden_external_writer_last_write_timestamp_seconds",
		"When each external writer last wrote any node's Ready, by the API server's clock, in seconds since 1970, as far as managedFields told this process. The writer is the field manager's name, which its client chose: good for display, not proof of who it was. Writers beyond the first 50 count as other.", []string{"writer"}, nil)
	watchSynced = prometheus.NewDesc("nodewarden_node_watch_synced",
		"1 once all nodes have been listed; until then the figures about nodes are missing.", nil, nil)
	watchAge = prometheus.NewDesc("nodewarden_node_watch_age_seconds",
		"Age of the picture that the figures about nodes show. Up to about 60 in a quiet cluster; more means that the API server cannot be heard, and the figures stand still.", nil, nil)
	clockOffset = prometheus.NewDesc("nodewarden_node_watch_clock_offset_seconds",
		"How far the API server's clock is ahead of this process's, to about a second. The figures about nodes go by the API server's.", nil, nil)
)

// collector computes the figures when it is scraped, so that they are never
// older than that.
type collector struct {
	picture *picture
	options Options
}

// Describe names what Collect gives.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		stalledNodes, namesSuppressed, nodeStalled, nodeAge, longUnknownNodes, nodesWithoutReady,
		watchedNodes, stalledAfter, writerLast, watchSynced, watchAge, clockOffset,
	} {
		ch <- d
	}
}

// Collect gives the figures of this moment. Before nodes have been listed it
// is silent about them rather than reassuring.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	g := gauges(ch)
	f := c.picture.look(c.options)
	g.set(watchSynced, truth(f.synced))
	g.set(stalledAfter, c.options.StalledAfter.Seconds())
	if f.synced {
		g.figures(f, c.options)
		g.set(clockOffset, c.picture.ear.offset().Seconds())
	}
}

// gauges takes values to a scrape.
type gauges chan<- prometheus.Metric

func (g gauges) figures(f figures, o Options) {
	g.set(stalledNodes, float64(f.stalled))
	g.set(namesSuppressed, truth(f.stalled > o.MaxNamedNodes))
	g.set(longUnknownNodes, float64(f.longUnknown))
	g.set(nodesWithoutReady, float64(f.noReady))
	g.set(watchedNodes, float64(f.watched))
	g.set(watchAge, f.age.Seconds())
	for _, n := range f.named {
		g.set(nodeStalled, 1, n.name, n.writer)
		g.set(nodeAge, n.age.Round(time.Second).Seconds(), n.name, n.writer)
	}
	for name, at := range f.writers {
		g.set(writerLast, float64(at.Unix()), name)
	}
}

func (g gauges) set(d *prometheus.Desc, v float64, labels ...string) {
	m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	g <- m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
