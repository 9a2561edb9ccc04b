package freshness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
	"github.com/nodewarden/nodewarden/test/controlplane"
	run "github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/freshness"
)

// watching runs the watch in this process, so that a test can choose its way
// to the API server, and returns how to scrape it.
func (c *cluster) watching(cfg *rest.Config, silence time.Duration) func() page {
	c.Helper()
	r := prometheus.NewRegistry()
	o := freshness.DefaultOptions()
	o.StalledAfter, o.Silence = quickAfter, silence
	// A reflector may say its last words after the test has ended.
	log := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig())
	w, err := freshness.New(freshness.Parts{Config: cfg, Options: o, Clock: clock.RealClock{}, Log: log}, r)
	if err != nil {
		c.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	c.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				c.Errorf("the watch ended with %v", err)
			}
		case <-time.After(time.Second):
			c.Error("the watch goes on a second after it was told to stop")
		}
	})
	return func() page {
		c.Helper()
		families, err := r.Gather()
		if err != nil {
			c.Fatal(err)
		}
		var text strings.Builder
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				c.Fatal(err)
			}
		}
		return page(text.String())
	}
}

// reporting are two nodes that report twice a second until the test ends.
func (c *cluster) reporting() *controlplane.SimulatedNodes {
	c.Helper()
	s, err := shared.SimulateNodes(c.context(), controlplane.SimOptions{
		Names:     []string{"n1", "n2"},
		Reporting: controlplane.Reporting{StatusEvery: 200 * time.Millisecond, ReportEvery: 500 * time.Millisecond, NoLease: true},
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(s.Close)
	return s
}

func current(p page) error {
	if age := p.value("nodewarden_node_watch_age_seconds"); age > quickAfter.Seconds() {
		return fmt.Errorf("the picture is %v s old", age)
	}
	return p.stalled(0)
}

func old(p page) error {
	if age := p.value("nodewarden_node_watch_age_seconds"); age < 2*quickAfter.Seconds() {
		return fmt.Errorf("the picture is only %v s old", age)
	}
	return p.stalled(0)
}

func TestAFrozenWatchMakesNobodyStalledAndResumes(t *testing.T) {
	c := begin(t)
	kubelets := c.reporting()
	p, cfg := between(t, webhook.config())
	scrape := c.watching(cfg, time.Minute)
	eventually(t, scrape, current)

	thaw := p.freeze(false)
	// Twice as long as it takes to stall, every page says the same: nobody is
	// stalled, and the picture gets old.
	always(t, 2*quickAfter, scrape, func(p page) error { return p.stalled(0) })
	eventually(t, scrape, old)

	thaw()
	// While it catches up, too.
	always(t, 2*time.Second, scrape, func(p page) error { return p.stalled(0) })
	eventually(t, scrape, current)
	if err := kubelets.Pause("n1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, scrape, func(p page) error { return p.stalled(0, "n1") })
}

func TestAWatchThatFreezesForGoodIsReplaced(t *testing.T) {
	for name, way := range map[string]func(*testing.T, *rest.Config) time.Duration{
		"HTTP/2 notices by a ping": func(t *testing.T, cfg *rest.Config) time.Duration {
			cfg.ServerName = "localhost" // or a connection with other settings is found in a cache
			t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
			t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
			return time.Hour
		},
		"HTTP/1.1 notices by the silence": func(_ *testing.T, cfg *rest.Config) time.Duration {
			cfg.NextProtos = []string{"http/1.1"}
			return 4 * time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			c.reporting()
			p, cfg := between(t, webhook.config())
			scrape := c.watching(cfg, way(t, cfg))
			eventually(t, scrape, current)
			defer p.freeze(true)()
			// Reports twice a second, by clocks of whole seconds, keep the picture
			// younger than this.
			const young = 3.0
			eventually(t, scrape, func(p page) error {
				if age := p.value("nodewarden_node_watch_age_seconds"); age < young {
					return fmt.Errorf("the picture is only %v s old", age)
				}
				return p.stalled(0)
			})
			eventually(t, scrape, func(p page) error {
				if age := p.value("nodewarden_node_watch_age_seconds"); age >= young {
					return fmt.Errorf("the picture is still %v s old", age)
				}
				return p.stalled(0)
			})
		})
	}
}

// TestReviewsGoOnWithoutAnAPIServer kills the API server under a webhook that
// watches nodes, and starts it again as one that cannot stream lists.
func TestReviewsGoOnWithoutAnAPIServer(t *testing.T) {
	c := begin(t)
	kubelets := c.reporting()
	hook := c.started(quick)
	scrape := func() page { return c.scrape(hook) }
	eventually(t, scrape, current)

	// However this ends, the next test finds the API server as it was.
	t.Cleanup(func() {
		shared.KillAPIServer()
		if err := shared.RestartAPIServer(context.Background()); err != nil {
			t.Error(err)
		}
	})
	shared.KillAPIServer()
	always(t, quickAfter+time.Second, func() page {
		review(t, hook)
		return scrape()
	}, func(p page) error { return p.stalled(0) })
	if p := scrape(); p.value("nodewarden_webhook_reviews_total") == 0 {
		t.Errorf("no reviews were answered:\n%s", p)
	}

	if err := shared.RestartAPIServer(c.context(), "--feature-gates=WatchList=false"); err != nil {
		t.Fatal(err)
	}
	eventually(t, scrape, current)
	again := c.started(quick)
	eventually(t, func() page { return c.scrape(again) }, current)
	if err := kubelets.Pause("n1"); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*run.Webhook{hook, again} {
		eventually(t, func() page { return c.scrape(h) }, func(p page) error { return p.stalled(0, "n1") })
	}
}

// review asks the webhook about a write, as an API server would.
func review(t *testing.T, hook *run.Webhook) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(hook.CA)
	asking := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	before := reviews.Node("n1")
	body := reviews.Body(reviews.Update(before, reviews.Detect(before, reviews.Heartbeat.Add(time.Minute)), reviews.Detector))
	resp, err := asking.Post(hook.URL, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatalf("a review was not answered: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("a review was answered with %s", resp.Status)
	}
}
