// Package freshness measures what it costs nodewarden-webhook to watch nodes:
// the memory of its whole process, and the time of a scrape.
package freshness

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

const (
	// maxRSS is what the process may take, in MiB, at its peak.
	maxRSS = 64
	// maxScrape is how long a scrape may take.
	maxScrape = 50 * time.Millisecond
	// ballast makes a node's object about as big as a busy node's, in bytes.
	ballast = 30_000
	// patience bounds every wait. Thousands of nodes take a while to register.
	patience = 8 * time.Minute

	// usual is the default policy, under which none of these nodes is stalled.
	usual = "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\n"
	// counted is a policy under which all nodes soon are, and are counted.
	counted = usual + "stalled: {statusReportPeriod: 1s, afterPeriods: 1}\n"
	// named is the same, and all of them are named.
	named = usual + "stalled: {statusReportPeriod: 1s, afterPeriods: 1, maxNamedNodes: 10000}\n"
)

func TestWatching300NodesStaysSmallAndQuick(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	simulate(t, cp, 300)
	for name, policy := range map[string]string{"nobody stalled": usual, "all stalled, named": named} {
		t.Run(name, func(t *testing.T) { _ = measure(t, cp, policy, 300) })
	}
}

// BenchmarkWatch5000Nodes fails where a limit is exceeded.
func BenchmarkWatch5000Nodes(b *testing.B) {
	const count = 5000
	cp := controlplane.ForTest(b, controlplane.Options{StartTimeout: time.Minute})
	simulate(b, cp, count)
	for _, p := range []struct{ name, policy string }{{"nobody stalled", usual}, {"all stalled and counted", counted}, {"all stalled and named", named}} {
		b.Run(p.name, func(b *testing.B) {
			for range b.N {
				c := measure(b, cp, p.policy, count)
				b.ReportMetric(float64(c.peak)/(1<<20), "MiB-peak-RSS")
				b.ReportMetric(float64(c.rss)/(1<<20), "MiB-RSS")
				b.ReportMetric(float64(c.best.Microseconds())/1000, "ms/scrape-best")
				b.ReportMetric(float64(c.median.Microseconds())/1000, "ms/scrape-median")
				b.ReportMetric(float64(c.worst.Microseconds())/1000, "ms/scrape-worst")
				b.ReportMetric(c.cores*1000, "millicores")
				b.ReportMetric(c.sync.Seconds(), "s-to-ready")
			}
		})
	}
}

// simulate registers nodes whose kubelets report at the usual rate.
func simulate(tb testing.TB, cp *controlplane.ControlPlane, count int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	_, err := cp.SimulateNodes(ctx, controlplane.SimOptions{
		Prefix: "n", Count: count, Ballast: ballast, Reporting: controlplane.Reporting{NoLease: true},
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// costs are what was measured of one webhook process.
type costs struct {
	rss, peak int64
	// scrapes: the quickest, the median and the slowest.
	best, median, worst time.Duration
	cores               float64
	sync                time.Duration
}

// measure starts a webhook that watches all nodes, scrapes it for a while, and
// fails where it takes too much.
func measure(tb testing.TB, cp *controlplane.ControlPlane, policy string, count int) costs {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	kubeconfig, err := cp.Kubeconfig(cp.Admin())
	if err != nil {
		tb.Fatal(err)
	}
	begun := time.Now()
	hook, err := guard.Start(ctx, cp, guard.Options{Policy: policy, Args: []string{"--kubeconfig=" + kubeconfig}})
	if err != nil {
		tb.Fatal(err)
	}
	defer hook.Kill()
	c := costs{sync: time.Since(begun)}
	awaitFigures(ctx, tb, hook, policy, count)
	before := usage(tb, hook)
	since := time.Now()
	var took []time.Duration
	for range 40 {
		at := time.Now()
		if _, err := hook.Metrics(ctx); err != nil {
			tb.Fatal(err)
		}
		took = append(took, time.Since(at))
		time.Sleep(250 * time.Millisecond) // four scrapes a second are plenty, and reports come in meanwhile
	}
	after := usage(tb, hook)
	slices.Sort(took)
	c.rss, c.peak = after.RSS, after.PeakRSS
	c.best, c.median, c.worst = took[0], took[len(took)/2], took[len(took)-1]
	c.cores = (after.CPU - before.CPU).Seconds() / time.Since(since).Seconds()
	c.judge(tb)
	return c
}

// judge holds the median scrape to the limit: the machine that measures also
// runs the control plane and all nodes.
func (c costs) judge(tb testing.TB) {
	tb.Helper()
	tb.Logf("RSS %d MiB, at its peak %d MiB; a scrape %s, mostly %s, at worst %s; %.3f cores; ready after %s",
		c.rss>>20, c.peak>>20, c.best.Round(time.Microsecond), c.median.Round(time.Microsecond), c.worst.Round(time.Microsecond), c.cores, c.sync.Round(time.Millisecond))
	if c.peak > maxRSS<<20 {
		tb.Errorf("the process took %d MiB at its peak, of %d allowed", c.peak>>20, maxRSS)
	}
	if c.median > maxScrape {
		tb.Errorf("a scrape took %s, of %s allowed", c.median, maxScrape)
	}
}

func usage(tb testing.TB, hook *guard.Webhook) controlplane.Usage {
	tb.Helper()
	u, err := hook.Usage()
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// awaitFigures waits until all nodes are watched and, where the policy makes
// them stall, nearly all are stalled: a few have always just reported.
func awaitFigures(ctx context.Context, tb testing.TB, hook *guard.Webhook, policy string, count int) {
	tb.Helper()
	least := 0.0
	if policy != usual {
		least = 0.9 * float64(count)
	}
	for {
		page, err := hook.Metrics(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		watched, stalled := guard.Sum(page, "nodewarden_watched_nodes"), guard.Sum(page, "nodewarden_stalled_nodes")
		if watched == float64(count) && stalled >= least {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatal(fmt.Errorf("%v nodes watched and %v stalled, want %d and %v: %w", watched, stalled, count, least, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
