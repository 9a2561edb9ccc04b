package freshness

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestTheEarHearsEveryByteAndReadsTheClock(t *testing.T) {
	more := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", at(20).Format(http.TimeFormat))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "x")
	}))
	defer server.Close()
	clock := testclock.NewFakeClock(noon)
	e := &ear{now: clock.Now}
	if !e.time().Equal(noon) || e.silence(noon) != 0 {
		t.Errorf("before any answer: %s, silent for %s", e.time(), e.silence(noon))
	}
	clock.SetTime(at(1))
	resp, err := (&http.Client{Transport: e.wrap(http.DefaultTransport)}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if !e.time().Equal(at(20)) || e.offset() != 19*time.Minute || e.silence(noon) != 0 {
		t.Errorf("after an answer: %s, ahead by %s, silent for %s", e.time(), e.offset(), e.silence(noon))
	}
	clock.SetTime(at(3))
	if got := e.silence(noon); got != 2*time.Minute || !e.time().Equal(at(22)) {
		t.Errorf("two minutes later: silent for %s, %s", got, e.time())
	}
	close(more)
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if got := e.silence(noon); got != 0 {
		t.Errorf("after another byte: silent for %s", got)
	}
}

func TestSilenceBeforeABeginningDoesNotCount(t *testing.T) {
	clock := testclock.NewFakeClock(noon)
	e := &ear{now: clock.Now}
	e.hear()
	clock.SetTime(at(10))
	if got := e.silence(at(9)); got != time.Minute {
		t.Errorf("silent for %s, want 1m", got)
	}
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func TestAFailedRequestIsNoSignOfLife(t *testing.T) {
	e := &ear{now: func() time.Time { return noon }}
	req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
	if _, err := e.wrap(failing{}).RoundTrip(req); err == nil || e.heard.Load() != nil {
		t.Errorf("error %v, heard %v", err, e.heard.Load())
	}
}
