package webhook

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
	"github.com/nodewarden/nodewarden/webhook"
)

// big is a detector's legal write to a Node of 40 KB.
var big = func() []byte {
	n := reviews.Node("node-7.region-1.example.org")
	return reviews.Body(reviews.Update(n, reviews.Detect(n, reviews.Heartbeat.Add(time.Minute)), reviews.Detector))
}()

// The bounds that a run must keep.
const (
	maxAllocations = 16
	maxDirectCPU   = 1.0 / 10 // of the typed handler's
	maxProcessCPU  = 1.0 / 3  // of the typed server's
	maxLoopbackP50 = 2.5      // of that of a server that only reads the body
)

// within fails the benchmark where got is more than most, and reports it.
func within(b *testing.B, got, most float64, unit string) {
	b.Helper()
	b.ReportMetric(got, unit)
	if got > most {
		b.Errorf("%s is %.3f, must be at most %.3f", unit, got, most)
	}
}

// direct calls a handler without a server around it, over and over with the
// same request and writer.
type direct struct {
	http.Handler
	body *bytes.Reader
	req  *http.Request
	out  writer
}

// writer is a ResponseWriter that is used again.
type writer struct {
	bytes.Buffer
	header http.Header
}

func (w *writer) Header() http.Header { return w.header }
func (w *writer) WriteHeader(int)     {}

func newDirect(b *testing.B, h http.Handler) *direct {
	b.Helper()
	d := &direct{Handler: h, body: bytes.NewReader(big), out: writer{header: http.Header{}}}
	var err error
	if d.req, err = http.NewRequest(http.MethodPost, webhook.Path, io.NopCloser(d.body)); err != nil {
		b.Fatal(err)
	}
	d.req.ContentLength = int64(len(big))
	d.req.Header.Set("Content-Type", "application/json")
	return d
}

func (d *direct) call() {
	d.body.Reset(big)
	d.out.Reset()
	d.ServeHTTP(&d.out, d.req)
}

// cpu is what n calls cost, the collection of their garbage included.
func (d *direct) cpu(n int) time.Duration {
	runtime.GC()
	start := ourCPU()
	for range n {
		d.call()
	}
	return ourCPU() - start
}

func ours() http.Handler {
	rules := contract.Default(contract.Enforce)
	o := webhook.DefaultOptions(rules)
	return webhook.NewHandler(rules, webhook.NewMetrics(prometheus.NewRegistry(), o), logr.Discard(), clock.RealClock{}, o.MaxInFlight)
}

// BenchmarkHandler compares the handlers alone.
func BenchmarkHandler(b *testing.B) {
	a, t := newDirect(b, ours()), newDirect(b, typed())
	for _, d := range []*direct{a, t} {
		if d.call(); !bytes.Contains(d.out.Bytes(), []byte(`"allowed":true`)) {
			b.Fatalf("not admitted: %s", d.out.String())
		}
	}
	const rounds, calls = 15, 40
	var ratios, ourCost, typedCost []float64
	for b.Loop() {
		for range rounds {
			cheap, dear := a.cpu(10*calls).Seconds()/(10*calls), t.cpu(calls).Seconds()/calls
			ratios, ourCost, typedCost = append(ratios, cheap/dear), append(ourCost, cheap), append(typedCost, dear)
		}
	}
	b.ReportMetric(1e6*median(ourCost), "ours-cpu-µs/review")
	b.ReportMetric(1e6*median(typedCost), "typed-cpu-µs/review")
	b.ReportMetric(testing.AllocsPerRun(50, t.call), "typed-allocs/review")
	within(b, testing.AllocsPerRun(200, a.call), maxAllocations, "ours-allocs/review")
	within(b, median(ratios), maxDirectCPU, "ours/typed-cpu")
}

// BenchmarkProcess compares whole processes, TLS and HTTP included.
func BenchmarkProcess(b *testing.B) {
	s := newServers(b)
	a, t := s.start(b, "ours"), s.start(b, "typed")
	const rounds, calls = 8, 150
	spent := map[*running]time.Duration{}
	asked := 0
	for b.Loop() {
		for range rounds {
			for _, r := range []*running{a, t} {
				start := childCPU(b, r.Process.Pid)
				for range calls {
					if err := r.ask(big); err != nil {
						b.Fatal(err)
					}
				}
				spent[r] += childCPU(b, r.Process.Pid) - start
			}
			asked += calls
		}
	}
	b.ReportMetric(1e6*spent[a].Seconds()/float64(asked), "ours-cpu-µs/review")
	b.ReportMetric(1e6*spent[t].Seconds()/float64(asked), "typed-cpu-µs/review")
	within(b, float64(spent[a])/float64(spent[t]), maxProcessCPU, "ours/typed-cpu")
}

// BenchmarkLoopback compares how long a client waits, over kept-alive TLS.
func BenchmarkLoopback(b *testing.B) {
	s := newServers(b)
	order := []string{"ours", "typed", "body"}
	servers, waits := map[string]*running{}, map[string][]float64{}
	for _, role := range order {
		servers[role] = s.start(b, role)
	}
	const rounds = 600
	for b.Loop() {
		for range rounds {
			for _, role := range order {
				start := time.Now()
				if err := servers[role].ask(big); err != nil {
					b.Fatal(err)
				}
				waits[role] = append(waits[role], time.Since(start).Seconds())
			}
		}
	}
	for _, role := range order {
		b.ReportMetric(1e6*median(waits[role]), role+"-p50-µs")
	}
	within(b, median(waits["ours"])/median(waits["body"]), maxLoopbackP50, "ours/body-p50")
}

// BenchmarkThroughput counts what one core answers while the client has the
// other ones. It has no bound: it is what it is on this machine.
func BenchmarkThroughput(b *testing.B) {
	if runtime.NumCPU() < 2 {
		b.Skip("needs a core for the client")
	}
	s := newServers(b)
	for _, role := range []string{"ours", "typed"} {
		b.Run(role, func(b *testing.B) {
			r := s.startOn(b, 0, role)
			keepOff(b, 0)
			const length, connections = 4 * time.Second, 6
			var answered atomic.Int64
			var rate, busy float64
			for b.Loop() {
				answered.Store(0)
				cpu, start := childCPU(b, r.Process.Pid), time.Now()
				var all sync.WaitGroup
				for range connections {
					all.Go(func() {
						for time.Since(start) < length {
							if err := r.ask(big); err != nil {
								b.Error(err)
								return
							}
							answered.Add(1)
						}
					})
				}
				all.Wait()
				took := time.Since(start).Seconds()
				rate = float64(answered.Load()) / took
				busy = (childCPU(b, r.Process.Pid) - cpu).Seconds() / took
			}
			b.ReportMetric(rate, "reviews/s")
			b.ReportMetric(busy, "cores-used")
			b.ReportMetric(rate/busy, "reviews/s/core")
		})
	}
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
