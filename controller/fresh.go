package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

const (
	// quietFor is how many node monitor periods the watch of nodes may say nothing
	// before it is checked whether there was anything to say.
	quietFor = 2
	// staleAfter is the age, in node monitor periods, from which the cache is not
	// acted on, and staleAtLeast is the least that comes to: a check takes a second
	// and confirms the time at which it began, whatever the period.
	staleAfter   = 4
	staleAtLeast = 5 * time.Second
	// hopelessAfter is how many times as old the cache is when the process reports
	// itself unhealthy, so that it is restarted and another one takes over.
	hopelessAfter = 6
	// uncut is how long a second watch lasts at least unless it was cut off. The
	// server ends it after a second, and the news of its beginning may travel
	// longer than that of its end.
	uncut = 900 * time.Millisecond
)

var errStale = errors.New("the cache of nodes is stale, waiting for its watch")

// freshness knows how old the cache of nodes may be. A watch that stalls looks
// like a cluster in which nothing happens, so after a silence a second, short
// watch is asked whether it sees what the first does not.
type freshness struct {
	clock  clock.WithTicker
	period time.Duration
	// version is the resourceVersion up to which the cache is complete.
	version func() string
	// since watches nodes from a resourceVersion for about a second.
	since func(ctx context.Context, version string) (watch.Interface, error)

	mu sync.Mutex
	at time.Time
}

// confirm notes that the cache was current at a time.
func (f *freshness) confirm(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.After(f.at) {
		f.at = at
	}
}

// age is how long ago the cache was last known to be current.
func (f *freshness) age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() {
		return 0
	}
	return f.clock.Since(f.at)
}

// limit is the age from which the cache is stale.
func (f *freshness) limit() time.Duration { return max(staleAfter*f.period, staleAtLeast) }

// stale says that the cache must not be acted on.
func (f *freshness) stale() bool { return f.age() > f.limit() }

// healthy is a health check that fails when the watch stalls for good.
func (f *freshness) healthy() error {
	if age := f.age(); age > hopelessAfter*f.limit() {
		return fmt.Errorf("the watch of nodes has been silent for %s although nodes changed", age.Round(time.Second))
	}
	return nil
}

// check asks a second watch, if the first has been silent for a while.
func (f *freshness) check(ctx context.Context) error {
	if f.age() < quietFor*f.period {
		return nil
	}
	asked := f.clock.Now()
	before := f.version()
	w, err := f.since(ctx, before)
	if err != nil {
		return fmt.Errorf("watch nodes a second time: %w", err)
	}
	defer w.Stop()
	opened := f.clock.Now()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Bookmark:
		case watch.Error:
			return fmt.Errorf("watch nodes a second time: %v", e.Object)
		default:
			// The first watch may only be a moment behind: then its next event
			// confirms it, and if there is none, the next check does not.
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	// A lost connection looks like a watch that has come to its end.
	if lasted := f.clock.Since(opened); lasted < uncut {
		return fmt.Errorf("watch nodes a second time: cut off after %s, too early to tell", lasted)
	}
	f.confirm(asked)
	return nil
}
