package freshness

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// ear listens to what the API server answers: for its clock, and for signs of
// life. With several API servers the clock is that of whichever answered last.
type ear struct {
	now    func() time.Time // ours
	anchor atomic.Pointer[anchor]
	heard  atomic.Pointer[time.Time]
}

// anchor is an instant that was read on two clocks.
type anchor struct{ theirs, ours time.Time }

// at is the API server's time at an instant of ours, to the second; our own
// time before any answer. The difference of two instants of ours is taken
// without regard to steps of the wall clock.
func (e *ear) at(ours time.Time) time.Time {
	a := e.anchor.Load()
	if a == nil {
		return ours
	}
	return a.theirs.Add(ours.Sub(a.ours))
}

// time is the API server's time.
func (e *ear) time() time.Time { return e.at(e.now()) }

// offset is how far the API server's clock is ahead of ours.
func (e *ear) offset() time.Duration {
	now := e.now().Round(0) // by the wall clock, as others see it
	return e.at(e.now()).Sub(now)
}

// silence is for how long nothing at all has been heard, or since when.
func (e *ear) silence(since time.Time) time.Duration {
	if last := e.heard.Load(); last != nil && last.After(since) {
		since = *last
	}
	return e.now().Sub(since)
}

func (e *ear) hear() {
	now := e.now()
	e.heard.Store(&now)
}

// wrap is a rest.Config.Wrap function.
func (e *ear) wrap(next http.RoundTripper) http.RoundTripper { return listener{e, next} }

type listener struct {
	*ear
	next http.RoundTripper
}

// RoundTrip passes the request on.
func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	l.hear()
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		l.anchor.Store(&anchor{theirs: date, ours: l.now()})
	}
	resp.Body = body{resp.Body, l.ear}
	return resp, nil
}

// WrappedRoundTripper lets client-go reach the transport underneath.
func (l listener) WrappedRoundTripper() http.RoundTripper { return l.next }

// body is an answer that is listened to while it arrives, which for a watch
// takes minutes.
type body struct {
	io.ReadCloser
	*ear
}

// Read passes on what arrives.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.hear()
	}
	return n, err
}
