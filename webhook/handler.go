package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/nodewarden/nodewarden/contract"
)

// MaxBody bounds a review, in bytes: two Nodes of the 3 MiB that an API server
// accepts, and what is around them.
const MaxBody = 7 << 20

const (
	// maxKept bounds the buffers kept for the next review, in bytes.
	maxKept = 1 << 20
	// roomAtFirst is how much room a body gets on its sender's word. More is
	// given as it arrives.
	roomAtFirst = 64 << 10
	// small bounds the bodies, in bytes, of which there may be smallRoom bytes at
	// a time; two big Nodes fit. Of larger ones, or of unknown length, there may
	// be maxLarge, so that memory is bounded whatever strangers send: what is
	// decoded of a body takes at most three times its length, or waits for its
	// turn (takeTurn).
	small     = 256 << 10
	smallRoom = 16 << 20
	maxLarge  = 3
)

// Handler answers POSTed admission reviews.
type Handler struct {
	policy  contract.Policy
	metrics *Metrics
	log     logr.Logger
	clock   clock.PassiveClock
	// slots bounds the reviews in flight, reading the bodies that are being read.
	slots, reading chan struct{}
	// small and large bound the bodies at hand, the former in bytes.
	small, large *semaphore.Weighted
	// review decides; tests replace it with one that panics or waits.
	review func(*review) answer
}

// NewHandler returns a Handler that judges by p and answers at most
// maxInFlight reviews at a time.
func NewHandler(p contract.Policy, m *Metrics, log logr.Logger, c clock.PassiveClock, maxInFlight int) *Handler {
	h := &Handler{policy: p, metrics: m, log: log, clock: c, slots: make(chan struct{}, maxInFlight),
		reading: make(chan struct{}, readersPerReview*maxInFlight), small: semaphore.NewWeighted(smallRoom), large: semaphore.NewWeighted(maxLarge)}
	h.review = h.judge
	return h
}

// readersPerReview is how many bodies may be on their way for each review that
// may be in flight. Reading costs little; a sender that dawdles must not keep
// others from being answered.
const readersPerReview = 4

// ServeHTTP answers one review.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := h.clock.Now()
	h.metrics.inFlight.Inc()
	defer h.metrics.inFlight.Dec()
	s, ok := scratches.Get().(*scratch)
	if !ok {
		s = new(scratch)
	}
	defer s.release()
	err := checkRequest(r)
	if err == nil {
		err = h.serve(s, r, start)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	w.Header()["Content-Type"] = jsonContentType
	if _, err := w.Write(s.answer.Bytes()); err != nil {
		h.log.V(1).Info("the API server went away before it had its answer", "error", err.Error())
	}
}

// serve leaves the answer to r in s. The room for the body is taken from its
// first byte to the answer.
func (h *Handler) serve(s *scratch, r *http.Request, start time.Time) error {
	room, size := h.small, r.ContentLength
	if size < 0 || size > small {
		room, size = h.large, 1
	}
	if !room.TryAcquire(size) {
		return errBusy
	}
	defer room.Release(size)
	if err := h.readBody(s, r); err != nil {
		return err
	}
	return h.inFlight(s, start)
}

// readBody reads the body of r into s, before the review takes its place among
// those in flight.
func (h *Handler) readBody(s *scratch, r *http.Request) error {
	if !enter(h.reading) {
		return errBusy
	}
	defer leave(h.reading)
	return s.read(r)
}

// inFlight answers the review in s, whose headers came at start.
func (h *Handler) inFlight(s *scratch, start time.Time) error {
	if !enter(h.slots) {
		return errBusy
	}
	defer func() {
		h.metrics.took(h.clock.Since(start))
		leave(h.slots)
	}()
	return h.respond(s)
}

func enter(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func leave(places chan struct{}) { <-places }

// scratch is what answering one review needs, kept for the next.
type scratch struct {
	body, answer bytes.Buffer
	limited      io.LimitedReader
}

var scratches sync.Pool

func (s *scratch) release() {
	if s.body.Cap() > maxKept {
		s.body = bytes.Buffer{}
	}
	s.limited.R = nil
	scratches.Put(s)
}

var jsonContentType = []string{"application/json"}

// fault is a request that is no review, and the HTTP status that says so.
type fault struct {
	status int
	reason badReason
	error
}

// errBusy is the answer to more than we take at a time.
var errBusy = errors.New("too many reviews in flight; try again")

// errPanic stands for a panic that was caught.
var errPanic = errors.New("internal error; the review was not judged")

func (h *Handler) fail(w http.ResponseWriter, err error) {
	if errors.Is(err, errBusy) {
		h.metrics.turnedAway()
		w.Header().Set("Retry-After", "1")
		http.Error(w, errBusy.Error(), http.StatusServiceUnavailable)
		return
	}
	f := fault{status: http.StatusInternalServerError, error: err}
	if errors.As(err, &f) {
		h.metrics.couldNotRead(f.reason)
		h.log.V(1).Info("could not read a review", "reason", f.reason, "error", bounded(f.Error(), maxLogged))
	}
	http.Error(w, bounded(f.Error(), maxLogged), f.status)
}

// maxLogged bounds what a log line or an error repeats of a request, in bytes.
const maxLogged = 512

// respond leaves the response to the body in s in s.answer. A defect that shows as a panic
// costs this one review only.
func (h *Handler) respond(s *scratch) (err error) {
	d := newDecoder(h.policy.NeedsLabels())
	defer func() {
		if p := recover(); p != nil {
			d.endTurn()
			h.metrics.panicked()
			h.log.Error(fmt.Errorf("panic: %.256v", p), "panic while answering a review", "stack", bounded(string(debug.Stack()), 16*maxLogged))
			err = errPanic
		}
	}()
	in, err := d.decode(s.body.Bytes())
	if err != nil {
		d.release()
		return fault{http.StatusBadRequest, badReview, err}
	}
	s.answer.Reset()
	a := h.review(in)
	err = a.encode(&s.answer)
	d.release() // not after a panic: who knows what state it is in
	return err
}

func checkRequest(r *http.Request) error {
	if r.Method != http.MethodPost {
		return fault{http.StatusMethodNotAllowed, badMethod, fmt.Errorf("method %.16s is not POST", r.Method)}
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return fault{http.StatusUnsupportedMediaType, badContentType, fmt.Errorf("content type %.64q is not application/json", r.Header.Get("Content-Type"))}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return fault{http.StatusUnsupportedMediaType, badEncoding, fmt.Errorf("content encoding %.64q is not understood; send the review as it is", e)}
	}
	if r.ContentLength > MaxBody {
		return errTooLong
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == jsonContentType[0] {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == jsonContentType[0]
}

var errTooLong = fault{http.StatusRequestEntityTooLarge, badLength, fmt.Errorf("the body is longer than %d bytes", MaxBody)}

// read reads the body of r into s.
func (s *scratch) read(r *http.Request) error {
	s.body.Reset()
	s.limited = io.LimitedReader{R: r.Body, N: MaxBody + 1}
	n, err := s.arrive(max(r.ContentLength, 0))
	switch {
	case err != nil:
		return fault{http.StatusBadRequest, badBody, fmt.Errorf("reading the body: %w", err)}
	case n > MaxBody:
		return errTooLong
	case n == 0:
		return fault{http.StatusBadRequest, badReview, errors.New("the body is empty")}
	}
	return nil
}

// arrive reads a body that was announced with a length. Once its beginning is
// there, it gets all its room at once: doubling would take twice as much.
func (s *scratch) arrive(announced int64) (int64, error) {
	beginning := min(announced, roomAtFirst)
	s.body.Grow(int(beginning) + bytes.MinRead)
	n, err := io.CopyN(&s.body, &s.limited, beginning)
	if errors.Is(err, io.EOF) {
		return n, nil // shorter than announced: the reader of the review says so
	}
	if err != nil {
		return n, err
	}
	s.body.Grow(int(announced-beginning) + bytes.MinRead)
	rest, err := s.body.ReadFrom(&s.limited)
	return n + rest, err
}
