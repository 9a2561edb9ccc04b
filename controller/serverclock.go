package controller

import (
	"net/http"
	"sync/atomic"
	"time"
)

// ServerClock learns the API server's time from the Date of its answers. With
// several API servers it is the clock of whichever answered last.
type ServerClock struct {
	now    func() time.Time
	offset atomic.Pointer[time.Duration]
}

// NewServerClock returns a clock that has yet to hear from an API server.
func NewServerClock(now func() time.Time) *ServerClock { return &ServerClock{now: now} }

// At is the API server's time when ours is now, to the second; zero as long as no
// answer has been seen.
func (c *ServerClock) At(now time.Time) time.Time {
	offset := c.offset.Load()
	if offset == nil {
		return time.Time{}
	}
	return now.Add(*offset)
}

// Wrap is a rest.Config.Wrap function that listens to the answers that pass.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper {
	return listener{clock: c, next: next}
}

type listener struct {
	clock *ServerClock
	next  http.RoundTripper
}

// RoundTrip passes the request on.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		offset := date.Sub(l.clock.now())
		l.clock.offset.Store(&offset)
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go reach the transport underneath, for
// instance to close idle connections.
func (l listener) WrappedRoundTripper() http.RoundTripper { return l.next }
