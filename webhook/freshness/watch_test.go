package freshness

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
)

func parts(clock *testclock.FakeClock) Parts {
	return Parts{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Options: DefaultOptions(), Clock: clock, Log: logr.Discard()}
}

func TestReadyWaitsForTheListButNotForEver(t *testing.T) {
	clock := testclock.NewFakeClock(noon)
	w, err := New(parts(clock), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if w.Ready() == nil {
		t.Error("ready before nodes were listed")
	}
	clock.Step(DefaultPatience - time.Second)
	if w.Ready() == nil {
		t.Error("ready before its patience ended")
	}
	clock.Step(time.Second)
	if err := w.Ready(); err != nil {
		t.Errorf("not ready after its patience ended: %v", err)
	}
	w, err = New(parts(clock), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.picture.asking()
	if err := w.picture.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Ready(); err != nil {
		t.Errorf("not ready although nodes were listed: %v", err)
	}
}

func TestAListIsAskedForWhenItBeginsHoweverItComes(t *testing.T) {
	clock := testclock.NewFakeClock(noon)
	w, err := New(parts(clock), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ask  func() error
		asks bool
	}{
		"page by page": {func() error { _, err := w.list(t.Context(), metav1.ListOptions{}); return err }, true},
		"as a stream": {func() error {
			_, err := w.watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
			return err
		}, true},
		"changes alone, no list": {func() error { _, err := w.watch(t.Context(), metav1.ListOptions{}); return err }, false},
	} {
		clock.Step(time.Minute)
		if err := c.ask(); err == nil {
			t.Errorf("%s: nobody listens, and yet there was an answer", name)
		}
		if got := w.picture.asked.Equal(clock.Now()); got != c.asks {
			t.Errorf("%s: asked at %s, now it is %s", name, w.picture.asked, clock.Now())
		}
	}
}

func TestOptionsNameEverythingThatIsWrong(t *testing.T) {
	p := parts(testclock.NewFakeClock(noon))
	p.Options = Options{StalledAfter: -1, MaxNamedNodes: -1, Silence: time.Millisecond, Patience: -1}
	_, err := New(p, prometheus.NewRegistry())
	if err == nil {
		t.Fatal("taken")
	}
	for _, path := range []string{"stalled:", "stalled.maxNamedNodes:", "silence:", "patience:"} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is missing in %v", path, err)
		}
	}
}

func TestAConfigThatCannotBeUsedIsAnError(t *testing.T) {
	p := parts(testclock.NewFakeClock(noon))
	p.Config = &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/no/such/file"}}
	if _, err := New(p, prometheus.NewRegistry()); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("got %v", err)
	}
}

func TestTwoWatchesCannotShareARegistry(t *testing.T) {
	r := prometheus.NewRegistry()
	p := parts(testclock.NewFakeClock(noon))
	if _, err := New(p, r); err != nil {
		t.Fatal(err)
	}
	if _, err := New(p, r); err == nil {
		t.Error("two collectors of the same metrics")
	}
}
