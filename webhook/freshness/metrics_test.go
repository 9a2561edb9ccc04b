package freshness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// scraped compares all that is exported, help lines included.
func (l *life) scraped(want string) {
	l.Helper()
	c := collector{l.picture, l.options()}
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		l.Error(err)
	}
}

func TestBeforeNodesAreListedNothingIsSaidOfThem(t *testing.T) {
	clock := func() time.Time { return noon }
	l := &life{T: t, picture: newPicture(&ear{now: clock})}
	l.scraped(`
# HELP nodewarden_node_watch_synced 1 once all nodes have been listed; until then the figures about nodes are missing.
# TYPE nodewarden_node_watch_synced gauge
nodewarden_node_watch_synced 0
# HELP nodewarden_stalled_after_seconds For how long Ready may go unwritten: stalled.afterPeriods times stalled.statusReportPeriod of the policy file.
# TYPE nodewarden_stalled_after_seconds gauge
nodewarden_stalled_after_seconds 900
`)
}

func TestEveryLineOfAScrape(t *testing.T) {
	l := begin(t,
		heard("n1", at(-20)).by("kubelet", at(-20)), heard("n2", at(-1)).by("kubelet", at(-1)),
		heard("n3", at(-200)).recorded("Unknown", at(-180)).by("detector", at(-180)),
		heard("n4", at(-17)), unreported("n5"),
	)
	l.ear.anchor.Store(&anchor{noon, noon.Add(-3 * time.Second)})
	l.until(1)
	l.scraped(`
# HELP nodewarden_external_writer_last_write_timestamp_seconds When each external writer last wrote any node's Ready, by the API server's clock, in seconds since 1970, as far as managedFields told this process. The writer is the field manager's name, which its client chose: good for display, not proof of who it was. Writers beyond the first 50 count as other.
# TYPE nodewarden_external_writer_last_write_timestamp_seconds gauge
nodewarden_external_writer_last_write_timestamp_seconds{writer="detector"} 1.7803044e+09
# HELP nodewarden_long_unknown_nodes Nodes whose Ready has been Unknown for longer than nodewarden_stalled_after_seconds. Their failure is recorded as it should be; they are not stalled.
# TYPE nodewarden_long_unknown_nodes gauge
nodewarden_long_unknown_nodes 1
# HELP nodewarden_node_ready_age_seconds Time since anybody wrote the Ready condition of a stalled node. Nodes that are not stalled have no series.
# TYPE nodewarden_node_ready_age_seconds gauge
nodewarden_node_ready_age_seconds{last_writer="kubelet",node="n1"} 1200
nodewarden_node_ready_age_seconds{last_writer="unrecorded",node="n4"} 1020
# HELP nodewarden_node_ready_stalled 1 for each stalled node. last_writer is the field manager that wrote Ready last, a name that its client chose, or unrecorded.
# TYPE nodewarden_node_ready_stalled gauge
nodewarden_node_ready_stalled{last_writer="kubelet",node="n1"} 1
nodewarden_node_ready_stalled{last_writer="unrecorded",node="n4"} 1
# HELP nodewarden_node_watch_age_seconds Age of the picture that the figures about nodes show. Up to about 60 in a quiet cluster; more means that the API server cannot be heard, and the figures stand still.
# TYPE nodewarden_node_watch_age_seconds gauge
nodewarden_node_watch_age_seconds 63
# HELP nodewarden_node_watch_clock_offset_seconds How far the API server's clock is ahead of this process's, to about a second. The figures about nodes go by the API server's.
# TYPE nodewarden_node_watch_clock_offset_seconds gauge
nodewarden_node_watch_clock_offset_seconds 3
# HELP nodewarden_node_watch_synced 1 once all nodes have been listed; until then the figures about nodes are missing.
# TYPE nodewarden_node_watch_synced gauge
nodewarden_node_watch_synced 1
# HELP nodewarden_nodes_without_ready Nodes that have no Ready condition.
# TYPE nodewarden_nodes_without_ready gauge
nodewarden_nodes_without_ready 1
# HELP nodewarden_stalled_after_seconds For how long Ready may go unwritten: stalled.afterPeriods times stalled.statusReportPeriod of the policy file.
# TYPE nodewarden_stalled_after_seconds gauge
nodewarden_stalled_after_seconds 900
# HELP nodewarden_stalled_names_suppressed 1 while more nodes are stalled than may be named (stalled.maxNamedNodes of the policy file), so that none is; else 0.
# TYPE nodewarden_stalled_names_suppressed gauge
nodewarden_stalled_names_suppressed 0
# HELP nodewarden_stalled_nodes Nodes whose Ready is True or False although nobody has written it for longer than nodewarden_stalled_after_seconds.
# TYPE nodewarden_stalled_nodes gauge
nodewarden_stalled_nodes 2
# HELP nodewarden_watched_nodes Nodes that the figures are about.
# TYPE nodewarden_watched_nodes gauge
nodewarden_watched_nodes 5
`)
}

func TestAboveTheLimitThereAreOnlyCounts(t *testing.T) {
	for stalledNow, named := range map[int]int{DefaultMaxNamedNodes: DefaultMaxNamedNodes, DefaultMaxNamedNodes + 1: 0} {
		var list []built
		for i := range stalledNow {
			list = append(list, heard(fmt.Sprintf("n%d", i), at(-20)))
		}
		l := begin(t, list...).seen(stalledNow, 0)
		c := collector{l.picture, l.options()}
		for _, name := range []string{"nodewarden_node_ready_stalled", "nodewarden_node_ready_age_seconds"} {
			if got := testutil.CollectAndCount(c, name); got != named {
				t.Errorf("%d nodes stalled: %d series of %s, want %d", stalledNow, got, name, named)
			}
		}
		want := fmt.Sprintf("# HELP nodewarden_stalled_names_suppressed 1 while more nodes are stalled than may be named (stalled.maxNamedNodes of the policy file), so that none is; else 0.\n# TYPE nodewarden_stalled_names_suppressed gauge\nnodewarden_stalled_names_suppressed %v\n", truth(named == 0))
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "nodewarden_stalled_names_suppressed"); err != nil {
			t.Error(err)
		}
	}
}

func TestMetricsFollowPrometheusNaming(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector{begin(t, heard("n", at(-20))).picture, DefaultOptions()})
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func BenchmarkScrapeOf5000Nodes(b *testing.B) {
	p := newPicture(&ear{now: func() time.Time { return noon }})
	p.asking()
	list := make([]any, 5000)
	for i := range list {
		list[i] = trim(heard(fmt.Sprintf("n%d", i), at(-20)).by("kubelet", at(-20)).Node)
	}
	if err := p.Replace(list, ""); err != nil {
		b.Fatal(err)
	}
	for name, limit := range map[string]int{"counts": 100, "names": 5000} {
		b.Run(name, func(b *testing.B) {
			o := DefaultOptions()
			o.MaxNamedNodes = limit
			r := prometheus.NewRegistry()
			r.MustRegister(collector{p, o})
			for b.Loop() {
				if _, err := r.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
