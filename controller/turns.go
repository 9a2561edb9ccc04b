package controller

import (
	"context"
	"time"
)

// turns hands out the turns to be tainted NoExecute as they come due.
type turns struct{ *nodes }

// Start runs until the context ends.
func (t turns) Start(ctx context.Context) error {
	if t.options.Mode == Beside {
		return nil
	}
	for ctx.Err() == nil {
		name, ok, wait := t.zones.next(t.clock.Now())
		if ok {
			t.looks.add(name)
			continue
		}
		t.await(ctx, wait)
	}
	return nil
}

// await waits for the next turn to come due, at the latest after wait unless that
// is negative.
func (t turns) await(ctx context.Context, wait time.Duration) {
	var due <-chan time.Time
	if wait >= 0 {
		timer := t.clock.NewTimer(wait)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-t.zones.kick:
	case <-due:
	}
}
