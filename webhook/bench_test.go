package webhook

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nodewarden/nodewarden/contract"
)
type sink struct { h http.Header; bytes.Buffer; code int }
func (s *sink) Header() http.Header { return s.h }
func (s *sink) WriteHeader(c int) { s.code = c }

func BenchmarkHandler(b *testing.B) {
	p := contract.Default(contract.Enforce)
	h := NewHandler(p, NewMetrics(prometheus.NewRegistry(), Options{}), logr.Discard(), clock.RealClock{}, 10)
	body := bigReview()
	b.Logf("%d", len(body))
	rd := bytes.NewReader(body)
	req, _ := http.NewRequest("POST", "/validate", io.NopCloser(rd))
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	w := &sink{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		rd.Reset(body)
		w.Reset()
		h.ServeHTTP(w, req)
	}
	b.Log(w.String())
}
