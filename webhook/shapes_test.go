package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
)

// shaped is a review of the given parts.
func shaped(apiVersion, request string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"AdmissionReview","request":{%s}}`, apiVersion, request)
}

const (
	target    = `"uid":"u1","resource":{"group":"","version":"v1","resource":"nodes"},`
	object    = `"userInfo":{"username":"detector"},"object":{"metadata":{"name":"n1"},"spec":{"new":[1]},"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","newField":{}}]}},`
	oldObject = `"oldObject":{"metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`
	objects   = object + oldObject
)

// knative/pkg#2184 and #2546, kargo#1868, gatekeeper#144, kubewebhook#71,
// kubernetes#115747, kyverno#14495 (B43): reviews in shapes that others took
// for something else.
func TestB43ShapesOfReviews(t *testing.T) {
	padded := strings.Replace(objects, `"spec":{"new":[1]}`, `"spec":{"podCIDR":"`+strings.Repeat("x", 3<<20)+`"}`, 1)
	for name, c := range map[string]struct {
		body, contentType string
		code              int
		allowed           bool
	}{
		"the status subresource is judged, unknown fields and all": {body: shaped("admission.k8s.io/v1", target+`"subResource":"status","operation":"UPDATE",`+objects), code: 200},
		"a body of 3 MB is judged like any other":                  {body: shaped("admission.k8s.io/v1", target+`"subResource":"status","operation":"UPDATE",`+padded), code: 200},
		"the node itself is not our business":                      {body: shaped("admission.k8s.io/v1", target+`"subResource":"","operation":"UPDATE",`+objects), code: 200, allowed: true},
		"a deletion has no object":                                 {body: shaped("admission.k8s.io/v1", target+`"operation":"DELETE","object":null,`+oldObject), code: 200, allowed: true},
		"a connection":                                             {body: shaped("admission.k8s.io/v1", target+`"subResource":"proxy","operation":"CONNECT","object":{"kind":"NodeProxyOptions"},"oldObject":null`), code: 200, allowed: true},
		"an old object without anything":                           {body: shaped("admission.k8s.io/v1", target+`"subResource":"status","operation":"UPDATE",`+object+`"oldObject":{}`), code: 200},
		"another version of reviews":                               {body: shaped("admission.k8s.io/v1beta1", target+`"subResource":"status","operation":"UPDATE",`+objects), code: 400},
		"no request":                                               {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, code: 400},
		"no uid":                                                   {body: shaped("admission.k8s.io/v1", strings.Replace(target, `"uid":"u1",`, "", 1)+`"subResource":"status","operation":"UPDATE",`+objects), code: 400},
		"nothing":                                                  {code: 400},
		"another content type":                                     {body: shaped("admission.k8s.io/v1", target+objects), contentType: "application/yaml", code: 415},
	} {
		t.Run(name, func(t *testing.T) {
			w := enforcing()
			r := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
			rec := w.send(r)
			if rec.Code != c.code {
				t.Fatalf("answered %d, want %d: %.300s", rec.Code, c.code, rec.Body)
			}
			if c.code == 200 && (strings.Contains(rec.Body.String(), `"allowed":true`) != c.allowed || !strings.Contains(rec.Body.String(), `"uid":"u1"`)) {
				t.Errorf("answered %.300s, want allowed %v", rec.Body, c.allowed)
			}
		})
	}
}

// Instants that an offset carried beyond the years 0 to 9999 reach the webhook
// as the API server prints them.
func TestInstantsBeyondTheCalendarAreJudgedNotRefusedAsUnreadable(t *testing.T) {
	for _, stamp := range []string{"10000-01-01T04:59:59Z", "-001-12-31T19:00:00Z"} {
		condition := `"status":"Unknown","reason":"OutOfBandProbeFailed","lastTransitionTime":"` + stamp + `"`
		body := strings.Replace(objects, `"status":"Unknown","reason":"NodeStatusUnknown"`, condition, 1)
		w := enforcing()
		got := w.answerTo(t, []byte(shaped("admission.k8s.io/v1", target+`"subResource":"status","operation":"UPDATE",`+body)))
		if got.Allowed || !strings.HasPrefix(got.Result.Message, "[TransitionTimeImplausible]") {
			t.Errorf("%s: %+v", stamp, got)
		}
	}
}

func TestSlowSendersDoNotTakeThePlacesOfReviews(t *testing.T) {
	o := DefaultOptions(contract.Default(contract.Enforce))
	o.MaxInFlight = 2
	w := handlerOf(o)
	var slow sync.WaitGroup
	var ends []*io.PipeWriter
	for range readersPerReview*o.MaxInFlight - 1 {
		body, send := io.Pipe()
		ends = append(ends, send)
		r := httptest.NewRequest(http.MethodPost, Path, body)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = small
		slow.Go(func() { w.send(r) })
		if _, err := send.Write([]byte("{")); err != nil { // it is being read
			t.Fatal(err)
		}
	}
	if rec := w.post(reviews.Body(update(failed, reviews.Detector))); rec.Code != http.StatusOK {
		t.Errorf("answered %d beside %d slow senders", rec.Code, len(ends))
	}
	for _, end := range ends {
		_ = end.CloseWithError(errors.New("gone"))
	}
	slow.Wait()
}

func TestLargeBodiesAreReadFewAtATime(t *testing.T) {
	w := enforcing()
	var slow sync.WaitGroup
	var ends []*io.PipeWriter
	large := func() *http.Request {
		body, send := io.Pipe()
		ends = append(ends, send)
		r := httptest.NewRequest(http.MethodPost, Path, body)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = MaxBody
		return r
	}
	for range maxLarge {
		r := large()
		slow.Go(func() { w.send(r) })
		if _, err := ends[len(ends)-1].Write([]byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	if rec := w.send(large()); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("one large body more was answered %d", rec.Code)
	}
	if rec := w.post(reviews.Body(update(failed, reviews.Detector))); rec.Code != http.StatusOK {
		t.Errorf("a review of usual size was answered %d", rec.Code)
	}
	for _, end := range ends {
		_ = end.CloseWithError(errors.New("gone"))
	}
	slow.Wait()
	r := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(reviews.Body(update(failed, reviews.Detector))))
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = -1
	if rec := w.send(r); rec.Code != http.StatusOK {
		t.Errorf("once they are gone, one was answered %d", rec.Code)
	}
}

func TestABodyThatIsSentAsItIsMaySaySo(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(reviews.Body(update(failed, reviews.Detector))))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "identity")
	if rec := enforcing().send(r); rec.Code != http.StatusOK {
		t.Errorf("answered %d %s", rec.Code, rec.Body)
	}
}

func TestRoomForABodyIsGivenAsItArrives(t *testing.T) {
	s := &scratch{}
	r := httptest.NewRequest(http.MethodPost, Path, strings.NewReader("{"))
	r.ContentLength = MaxBody
	if err := s.read(r); err != nil {
		t.Fatal(err)
	}
	if room := s.body.Cap(); room > 2*roomAtFirst+bytes.MinRead {
		t.Errorf("%d bytes of room for one byte that was announced as %d", room, MaxBody)
	}
}

// ticking steps a clock while it is read.
type ticking struct {
	io.Reader
	tick func()
}

func (r ticking) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.tick()
	}
	return n, err
}

func TestTheDurationOfAReviewBeginsWithItsHeaders(t *testing.T) {
	w := enforcing()
	body := reviews.Body(update(failed, reviews.Detector))
	r := httptest.NewRequest(http.MethodPost, Path, ticking{bytes.NewReader(body), func() { w.clock.SetTime(w.clock.Now().Add(time.Second)) }})
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	if rec := w.send(r); rec.Code != http.StatusOK {
		t.Fatalf("answered %d", rec.Code)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "nodewarden_webhook_review_duration_seconds" {
			if got := f.GetMetric()[0].GetHistogram().GetSampleSum(); got < 1 {
				t.Errorf("%v s, though the body took a second and more", got)
			}
			return
		}
	}
	t.Error("no duration was measured")
}
