package controller

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// turns hands out the turns to be tainted NoExecute as they come due.
type turns struct{ *nodes }

// Start runs until the context ends.
func (t turns) Start(ctx context.Context) error {
	if t.options.Mode == Beside {
		return nil
	}
	for {
		name, ok, wait := t.zones.next(t.clock.Now())
		if ok {
			t.looks.add(name)
			continue
		}
		var due <-chan time.Time
		var timer clock.Timer
		if wait >= 0 {
			timer = t.clock.NewTimer(wait)
			due = timer.C()
		}
		select {
		case <-ctx.Done():
		case <-t.zones.kick:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}
