package controller

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
)

// open is a second watch that ends by itself, and says nothing of why.
type open struct {
	*watch.FakeWatcher
	// until is told when it ends.
	until func()
}

func (o open) ResultChan() <-chan watch.Event {
	o.until()
	o.Stop()
	return o.FakeWatcher.ResultChan()
}

func TestASilentCacheIsTrustedOnlyIfASecondWatchIsSilentToo(t *testing.T) {
	refused := errors.New("no")
	cases := map[string]struct {
		silence time.Duration
		// opening is how long the second watch takes to begin, lasts how long until it ends.
		opening, lasts time.Duration
		second         []watch.EventType
		err            error
		wantAge        time.Duration
		wantStale      bool
		wantErr        bool
	}{
		"a short silence is not checked":              {silence: 9 * time.Second, second: []watch.EventType{watch.Modified}, wantAge: 9 * time.Second},
		"a cluster in which nothing happens is fresh": {silence: time.Hour, lasts: time.Second, wantAge: time.Second},
		"a bookmark is nothing":                       {silence: time.Hour, lasts: time.Second, second: []watch.EventType{watch.Bookmark}, wantAge: time.Second},
		"news of the end may be faster than others":   {silence: time.Hour, lasts: 950 * time.Millisecond, wantAge: 950 * time.Millisecond},
		"a change that the cache missed is not":       {silence: time.Minute, second: []watch.EventType{watch.Modified}, wantAge: time.Minute, wantStale: true},
		"a watch that fails proves nothing":           {silence: time.Minute, err: refused, wantAge: time.Minute, wantStale: true, wantErr: true},
		"nor does one that ends in an error":          {silence: time.Minute, lasts: time.Second, second: []watch.EventType{watch.Error}, wantAge: 61 * time.Second, wantStale: true, wantErr: true},
		"nor one that is cut off":                     {silence: time.Minute, lasts: time.Millisecond, wantAge: time.Minute + time.Millisecond, wantStale: true, wantErr: true},
		"nor one that is cut off after a bookmark":    {silence: time.Minute, lasts: time.Millisecond, second: []watch.EventType{watch.Bookmark}, wantAge: time.Minute + time.Millisecond, wantStale: true, wantErr: true},
		"nor one that only took long to open":         {silence: time.Minute, opening: time.Second, lasts: time.Millisecond, wantAge: 61*time.Second + time.Millisecond, wantStale: true, wantErr: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(noon)
			f := &freshness{clock: clock, period: 5 * time.Second, version: func() string { return "7" }}
			f.since = func(_ context.Context, version string) (watch.Interface, error) {
				if version != "7" {
					t.Errorf("watches from %s", version)
				}
				clock.Step(c.opening)
				w := watch.NewFakeWithChanSize(len(c.second), false)
				for _, e := range c.second {
					w.Action(e, &corev1.Node{})
				}
				return open{w, func() { clock.Step(c.lasts) }}, c.err
			}
			f.confirm(noon)
			clock.Step(c.silence)
			if err := f.check(t.Context()); (err != nil) != c.wantErr {
				t.Errorf("check says %v", err)
			}
			if f.age() != c.wantAge || f.stale() != c.wantStale {
				t.Errorf("%v old, stale %v; want %v, %v", f.age(), f.stale(), c.wantAge, c.wantStale)
			}
		})
	}
}

func TestAWatchThatEndsWithTheProcessIsNoFault(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	f := &freshness{clock: clock, period: 5 * time.Second, version: func() string { return "7" }}
	ctx, stop := context.WithCancel(t.Context())
	f.since = func(context.Context, string) (watch.Interface, error) {
		return open{watch.NewFakeWithChanSize(0, false), stop}, nil
	}
	f.confirm(noon)
	clock.Step(time.Minute)
	if err := f.check(ctx); err != nil || !f.stale() {
		t.Errorf("stale %v, err %v", f.stale(), err)
	}
}

func TestAClusterInWhichNothingHappensIsNeverStale(t *testing.T) {
	for _, period := range []time.Duration{shortestPeriod, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second} {
		t.Run(period.String(), func(t *testing.T) {
			clock := clocktesting.NewFakeClock(noon)
			f := &freshness{clock: clock, period: period, version: func() string { return "7" }}
			sound := func() {
				if f.stale() || f.healthy() != nil {
					t.Fatalf("stale, or worse, after %v of silence: %v", f.age(), f.healthy())
				}
			}
			f.since = func(context.Context, string) (watch.Interface, error) {
				return open{watch.NewFakeWithChanSize(0, false), func() {
					clock.Step(1050 * time.Millisecond)
					sound()
				}}, nil
			}
			f.confirm(noon)
			for clock.Since(noon) < time.Minute {
				clock.Step(period - clock.Since(noon)%period)
				sound()
				if err := f.check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAWatchSilentForGoodEndsTheProcess(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	f := &freshness{clock: clock, period: 5 * time.Second}
	f.confirm(noon)
	clock.Step(2 * time.Minute)
	if err := f.healthy(); err != nil {
		t.Errorf("after two minutes: %v", err)
	}
	clock.Step(time.Second)
	if err := f.healthy(); err == nil {
		t.Error("still healthy after more than two minutes")
	}
}

type answer string

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	if a == "" {
		return nil, errors.New("no answer")
	}
	return &http.Response{Header: http.Header{"Date": {string(a)}}}, nil
}

func TestTheServersClockComesFromItsAnswers(t *testing.T) {
	c := NewServerClock(func() time.Time { return noon })
	ask := func(a answer) { _, _ = c.Wrap(a).RoundTrip(nil) }
	ask("")
	ask("yesterday")
	if got := c.At(noon); !got.IsZero() {
		t.Errorf("knows the time %v from nobody", got)
	}
	ask("Sun, 29 Nov 2026 12:00:30 GMT")
	if got, want := c.At(noon.Add(time.Hour)), noon.Add(time.Hour+30*time.Second); !got.Equal(want) {
		t.Errorf("says %v, want %v", got, want)
	}
}
