package certs

import (
	"bytes"
	"time"
)

// calm is how long a bundle must stand until a quarrel about it is over.
const calm = 4 * lastRetry

// quarrel is with somebody who takes our bundle out of the configuration, or
// puts another in, again and again. We give way more and more, and do not call
// in step what will not last. The zero quarrel is none.
type quarrel struct {
	bundle []byte
	last   time.Time
	pause  time.Duration
}

// put notes that bundle had to be put into the configuration at now, and
// returns how long to wait before it may be again.
func (q *quarrel) put(bundle []byte, now time.Time) time.Duration {
	if bytes.Equal(bundle, q.bundle) && now.Sub(q.last) < calm {
		q.pause = min(2*q.pause, lastRetry)
	} else {
		q.pause = firstRetry
	}
	q.bundle, q.last = bundle, now
	return q.pause
}

// lasts returns how long the quarrel goes on if nobody does anything; 0 where
// there is none.
func (q *quarrel) lasts(now time.Time) time.Duration {
	if q.pause <= firstRetry {
		return 0
	}
	return max(0, q.last.Add(calm).Sub(now))
}
