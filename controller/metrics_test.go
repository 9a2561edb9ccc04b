package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
	"github.com/nodewarden/nodewarden/controller/zone"
)

func TestTheMetricsPage(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := NewMetrics(r)
	m.Sources([]lifecycle.Source{lifecycle.External})
	m.ZoneSeen("r:\x00:a")
	m.Evicted("r:\x00:a")
	m.Passed(3*time.Second, 2*time.Second)
	m.PodMarked()
	m.PodFailed()
	m.Unleased(7)
	m.CacheAge(func() time.Duration { return 1500 * time.Millisecond })
	m.Zones(func() []zone.Figure {
		return []zone.Figure{{Zone: "r:\x00:a", State: zone.PartialDisruption, Rate: 0.5, Counted: 4, Down: 3, Waiting: 2}}
	})
	want := strings.ReplaceAll(`
# HELP node_collector_evictions_total Nodes tainted NoExecute because they were down, by zone. Swaps between the two taints are not counted.
# TYPE node_collector_evictions_total counter
node_collector_evictions_total{zone="r:NUL:a"} 1
# HELP node_collector_liveness_source 1 for each configured source of node liveness.
# TYPE node_collector_liveness_source gauge
node_collector_liveness_source{source="external"} 1
# HELP node_collector_unhealthy_nodes_in_zone Counted nodes of a zone that are not Ready.
# TYPE node_collector_unhealthy_nodes_in_zone gauge
node_collector_unhealthy_nodes_in_zone{zone="r:NUL:a"} 3
# HELP node_collector_zone_health Share of the counted nodes of a zone that are Ready, in percent.
# TYPE node_collector_zone_health gauge
node_collector_zone_health{zone="r:NUL:a"} 25
# HELP node_collector_zone_size Counted nodes of a zone.
# TYPE node_collector_zone_size gauge
node_collector_zone_size{zone="r:NUL:a"} 4
# HELP nodewarden_controller_node_cache_age_seconds Time since the cache of nodes was last known to be current. Pods are not marked while it is more than a few node monitor periods.
# TYPE nodewarden_controller_node_cache_age_seconds gauge
nodewarden_controller_node_cache_age_seconds 1.5
# HELP nodewarden_controller_pass_overruns_total Passes over all nodes that took longer than the node monitor period.
# TYPE nodewarden_controller_pass_overruns_total counter
nodewarden_controller_pass_overruns_total 1
# HELP nodewarden_controller_pod_mark_failures_total Attempts to make a pod NotReady that failed and will be repeated.
# TYPE nodewarden_controller_pod_mark_failures_total counter
nodewarden_controller_pod_mark_failures_total 1
# HELP nodewarden_controller_pods_marked_total Pods made NotReady because their node was down.
# TYPE nodewarden_controller_pods_marked_total counter
nodewarden_controller_pods_marked_total 1
# HELP nodewarden_controller_unleased_nodes Nodes on the kubelet source that report their status and renew no Lease. They will flap between Unknown and Ready.
# TYPE nodewarden_controller_unleased_nodes gauge
nodewarden_controller_unleased_nodes 7
# HELP nodewarden_controller_zone_eviction_rate Nodes per second of a zone that may be tainted NoExecute.
# TYPE nodewarden_controller_zone_eviction_rate gauge
nodewarden_controller_zone_eviction_rate{zone="r:NUL:a"} 0.5
# HELP nodewarden_controller_zone_state 1 for the state a zone is in.
# TYPE nodewarden_controller_zone_state gauge
nodewarden_controller_zone_state{state="PartialDisruption",zone="r:NUL:a"} 1
# HELP nodewarden_controller_zone_waiting_nodes Nodes of a zone that are down and wait for their turn to be tainted NoExecute.
# TYPE nodewarden_controller_zone_waiting_nodes gauge
nodewarden_controller_zone_waiting_nodes{zone="r:NUL:a"} 2
`, "NUL", "\x00")
	var compared []string
	for line := range strings.Lines(want) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" {
			compared = append(compared, fields[2])
		}
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), compared...); err != nil {
		t.Error(err)
	}
	histograms := []string{"node_collector_update_node_health_duration_seconds", "node_collector_update_all_nodes_health_duration_seconds", "nodewarden_controller_reaction_seconds"}
	m.Looked(time.Second)
	m.Reacted(time.Second)
	if n, err := testutil.GatherAndCount(r, histograms...); err != nil || n != len(histograms) {
		t.Errorf("%d of %d histograms: %v", n, len(histograms), err)
	}
	if all, err := testutil.GatherAndCount(r); err != nil || all != strings.Count(want, "\n")-1-2*len(compared)+len(histograms) {
		t.Errorf("%d series in all, err %v: one is missing from this test", all, err)
	}
	if problems, err := testutil.GatherAndLint(r, append(compared[:0:0], histograms...)...); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestTheCountOfAZoneComesAndGoesWithIt(t *testing.T) {
	const name = "node_collector_evictions_total"
	r := prometheus.NewPedanticRegistry()
	m := NewMetrics(r)
	var there []zone.Figure
	m.Zones(func() []zone.Figure { return there })
	for _, step := range []struct {
		happens func()
		zones   []string
		want    string
	}{
		{func() { m.ZoneSeen("a") }, []string{"a"}, `{zone="a"} 0`},
		{func() { m.ZoneSeen("b"); m.Evicted("b"); m.Evicted("b") }, []string{"a", "b"}, `{zone="a"} 0,{zone="b"} 2`},
		{func() {}, []string{"a"}, `{zone="a"} 0`},
		{func() { m.ZoneSeen("b") }, []string{"a", "b"}, `{zone="a"} 0,{zone="b"} 0`},
		{func() {}, nil, ``},
	} {
		step.happens()
		there = nil
		for _, z := range step.zones {
			there = append(there, zone.Figure{Zone: z})
		}
		want := "# HELP " + name + " Nodes tainted NoExecute because they were down, by zone. Swaps between the two taints are not counted.\n# TYPE " + name + " counter\n"
		for series := range strings.SplitSeq(step.want, ",") {
			want += name + series + "\n"
		}
		if step.want == "" {
			want = ""
		}
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), name); err != nil {
			t.Errorf("zones %q: %v", step.zones, err)
		}
	}
}
