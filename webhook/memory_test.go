package webhook

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
)

// stuffed is an update whose Nodes hold as many copies of a value as fit.
func stuffed(size int, before, after, value string) []byte {
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"UPDATE","resource":{"version":"v1","resource":"nodes"},"subResource":"status",`
	many := strings.Repeat(value+",", size/2/(len(value)+1)) + value
	fill := func(node string) string { return strings.ReplaceAll(node, "$", many) }
	return []byte(head + `"object":` + fill(after) + `,"oldObject":` + fill(before) + `}}`)
}

// What is decoded of a body must not be a hundred times as big, whatever
// strangers put into it.
func TestABodyIsNotDecodedIntoManyTimesItsSize(t *testing.T) {
	node := func(metadata, conditions string) string {
		return `{"metadata":{"name":"n1"` + metadata + `},"status":{"conditions":[` + conditions + `]}}`
	}
	shapes := map[string][3]string{
		"empty conditions":      {node("", "$"), node("", "$"), `{}`},
		"conditions of nothing": {node("", "$"), node("", "$"), `null`},
		"short conditions":      {node("", "$"), node("", "$"), `{"type":"a"}`},
		"owners":                {node(`,"ownerReferences":[$]`, ""), node(`,"ownerReferences":[$,{}]`, ""), `{}`},
		"finalizers":            {node(`,"finalizers":[$]`, ""), node(`,"finalizers":[$,""]`, ""), `""`},
		"managed fields":        {node(`,"managedFields":[$]`, ""), node(`,"managedFields":[$]`, ""), `{"subresource":"status","fieldsV1":{"Ready":0}}`},
		"twice the same field":  {node(`,"name":""`, "$"), node(`,"name":""`, "$"), `{}`},
		"no UTF-8 and images":   {"{\"a\":\"\xff\",\"status\":{\"images\":[$],\"images\":[]}}", "{\"a\":\"\xff\",\"status\":{\"images\":[$],\"images\":[]}}", `{}`},
		"quotes and commas":     {node("", `{"message":"$"}`), node("", `{"message":"$"}`), `\",[`},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{small, MaxBody} {
				body := stuffed(size-1024, shape[0], shape[1], shape[2])
				d := newDecoder(true)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := d.decode(body)
				runtime.ReadMemStats(&after)
				if took, limit := after.TotalAlloc-before.TotalAlloc, uint64(4*len(body)+40<<20); took > limit {
					t.Errorf("%d bytes were decoded into %d, more than %d (%v)", len(body), took, limit, err)
				}
				d.release()
				if kept := cap(d.entries[0]) + cap(d.entries[1]) + cap(d.managed) + cap(d.groups); kept > 4*maxKeptEntries {
					t.Errorf("room for %d entries is kept for the next review", kept)
				}
			}
		})
	}
}

// Room and turns that are not given back would stop the webhook for good.
func TestEveryReviewGivesItsTurnBack(t *testing.T) {
	w := handlerOf(DefaultOptions(contract.Default(contract.Enforce)))
	judge := w.review
	twice := stuffed(fewBytes, `{"metadata":{"name":"a","name":"n1"}}`, `{"metadata":{"name":"n1"},"status":{"conditions":[$]}}`, `{"type":"a"}`)
	for range 2*maxTurns + 1 {
		w.review = judge
		if rec := w.post(twice); rec.Code != http.StatusOK {
			t.Fatalf("answered %d", rec.Code)
		}
		w.review = func(*review) answer { panic("defect") }
		if rec := w.post(twice); rec.Code != http.StatusInternalServerError {
			t.Fatalf("answered %d", rec.Code)
		}
		for _, length := range []int64{small, small + 1} {
			r := httptest.NewRequest(http.MethodPost, Path, strings.NewReader("{"))
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = length
			if rec := w.send(r); rec.Code != http.StatusBadRequest {
				t.Fatalf("%d bytes were announced, one was sent, and answered %d", length, rec.Code)
			}
		}
	}
	if len(turns) != 0 || !w.small.TryAcquire(smallRoom) || !w.large.TryAcquire(maxLarge) {
		t.Errorf("%d turns are still taken, or some of the room", len(turns))
	}
}

func TestBigBuffersAreNotKept(t *testing.T) {
	s := new(scratch)
	s.body.Grow(maxKept + 1)
	s.release()
	if s.body.Cap() != 0 {
		t.Errorf("%d bytes are kept for the next review", s.body.Cap())
	}
}

// Bodies at hand are bounded together, too: those that are read in full and
// wait for their answer count.
func TestSmallBodiesShareTheRoomThatTheyHave(t *testing.T) {
	w := handlerOf(DefaultOptions(contract.Default(contract.Enforce)))
	if !w.small.TryAcquire(smallRoom - 1) {
		t.Fatal("the room is taken")
	}
	if rec := w.post(reviews.Body(update(failed, reviews.Detector))); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("without room a review was answered %d", rec.Code)
	}
	w.small.Release(smallRoom - 1)
	if rec := w.post(reviews.Body(update(failed, reviews.Detector))); rec.Code != http.StatusOK {
		t.Errorf("with room a review was answered %d", rec.Code)
	}
}
