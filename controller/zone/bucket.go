package zone

import "time"

// bucket holds at most one token, refilled at rate tokens per second. A rate of
// zero or less never grants, and throws away what was there: none means none.
type bucket struct {
	rate   float32
	tokens float64
	at     time.Time
}

func fullBucket(rate float32, now time.Time) bucket {
	b := bucket{rate: rate, at: now}
	if rate > 0 {
		b.tokens = 1
	}
	return b
}

func (b bucket) refilled(now time.Time) bucket {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(1, b.tokens+passed.Seconds()*max(0, float64(b.rate)))
		b.at = now
	}
	return b
}

// ready says whether a token is there. A nanosecond's worth of rounding does not
// make anybody wait for another tick.
func (b bucket) ready() bool {
	return b.rate > 0 && b.tokens > 1-1e-9
}

func (b bucket) take() bucket {
	b.tokens = 0
	return b
}

// wait is how long until a token is there; negative when there will be none.
func (b bucket) wait() time.Duration {
	if b.rate <= 0 {
		return -1
	}
	if b.ready() {
		return 0
	}
	// Rounded up, or the caller would wake before the token is there.
	seconds := (1 - b.tokens) / float64(b.rate)
	if seconds > time.Duration(1<<62).Seconds() {
		return -1
	}
	return time.Duration(seconds*float64(time.Second)) + time.Nanosecond
}

// changed has another rate. Only a bucket that has a token hands one on, so a change
// of rate is never a way to a second one.
func (b bucket) changed(rate float32, now time.Time) bucket {
	b = b.refilled(now)
	if rate == b.rate {
		return b
	}
	if b.ready() {
		return fullBucket(rate, now)
	}
	return bucket{rate: rate, at: now}
}
