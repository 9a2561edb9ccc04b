package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func readPage(t *testing.T) (head, lists string) {
	t.Helper()
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	head, lists, err = split(string(page))
	if err != nil {
		t.Fatalf("docs/metrics.md: %v", err)
	}
	return head, lists
}

// TestTheListsAreWhatTheProgramsRegister fails for a metric that is not
// documented, one that is and is gone, and one that changed.
func TestTheListsAreWhatTheProgramsRegister(t *testing.T) {
	_, lists := readPage(t)
	want, err := render(programs)
	if err != nil {
		t.Fatal(err)
	}
	if lists == want {
		return
	}
	have := strings.Split(lists, "\n")
	for line := range strings.Lines(want) {
		if line = strings.TrimSuffix(line, "\n"); !contains(have, line) {
			t.Errorf("missing: %s", line)
		}
	}
	now := strings.Split(want, "\n")
	for _, line := range have {
		if !contains(now, line) {
			t.Errorf("no longer true: %s", line)
		}
	}
	t.Error("docs/metrics.md is not what the programs register: run make generate")
}

func contains(lines []string, line string) bool {
	for _, l := range lines {
		if l == line {
			return true
		}
	}
	return false
}

var (
	named  = regexp.MustCompile(`\b(?:nodewarden|node_collector)_[a-z0-9_]+\b`)
	series = regexp.MustCompile(`_(?:bucket|sum|count)$`)
)

func TestTheTextNamesOnlyMetricsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, p := range programs {
		metrics, err := of(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range metrics {
			known[m.name] = true
		}
	}
	head, _ := readPage(t)
	found := named.FindAllString(head, -1)
	if len(found) < 10 {
		t.Errorf("only %d metrics found in the text", len(found))
	}
	for _, name := range found {
		if !known[name] && !known[series.ReplaceAllString(name, "")] {
			t.Errorf("the text names %s, which no program registers", name)
		}
	}
}

func TestEveryMetricSaysWhatItIsAndWhoseItIs(t *testing.T) {
	owner := map[string]string{}
	for _, p := range programs {
		metrics, err := of(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(metrics) == 0 {
			t.Errorf("%s registers nothing", p.title)
		}
		for _, m := range metrics {
			if named.FindString(m.name) != m.name {
				t.Errorf("%s begins with neither nodewarden_ nor node_collector_", m.name)
			}
			if !strings.HasSuffix(m.help, ".") {
				t.Errorf("%s: the help is no sentence: %q", m.name, m.help)
			}
			if (m.kind == "counter") != strings.HasSuffix(m.name, "_total") {
				t.Errorf("%s is a %s: counters end in _total, and nothing else does", m.name, m.kind)
			}
			if other, taken := owner[m.name]; taken {
				t.Errorf("%s and %s both register %s", other, p.title, m.name)
			}
			owner[m.name] = p.title
		}
	}
}

func TestTypesAreReadFromWhatWasRegistered(t *testing.T) {
	for want, c := range map[string]prometheus.Collector{
		"| `a_total` | counter |  | A. |":             prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total", Help: "A."}),
		"| `b` | gauge | `x`, `y` | B \"b\" \\| b. |": prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "b", Help: `B "b" | b.`}, []string{"x", "y"}),
		"| `c_seconds` | histogram |  | C. |":         prometheus.NewHistogram(prometheus.HistogramOpts{Name: "c_seconds", Help: "C."}),
		"| `d_seconds` | histogram | `x` | D. |":      prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "d_seconds", Help: "D."}, []string{"x"}),
		"| `e_total` | counter | `x` | E. |":          prometheus.NewCounterVec(prometheus.CounterOpts{Name: "e_total", Help: "E."}, []string{"x"}),
		"| `f` | gauge |  | F. |":                     prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "f", Help: "F."}, func() float64 { return 1 }),
		"| `g_seconds` | summary | `x` | G. |":        prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "g_seconds", Help: "G."}, []string{"x"}),
		"| `h_seconds` | summary |  | H. |":           prometheus.NewSummary(prometheus.SummaryOpts{Name: "h_seconds", Help: "H."}),
	} {
		text, err := render([]part{{"t", func(r prometheus.Registerer) error { r.MustRegister(c); return nil }}})
		if err != nil || !strings.Contains(text, want+"\n") {
			t.Errorf("want the line\n%s\nin %v\n%s", want, err, text)
		}
	}
}

func TestWritingRenewsTheListsAndKeepsTheText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.md")
	if err := os.WriteFile(path, []byte("by hand\n"+marker+"old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(path); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := render(programs)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != "by hand\n"+marker+want {
		t.Errorf("written:\n%s", page)
	}
	if err := os.WriteFile(path, []byte("no marker\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if write(path) == nil {
		t.Error("a page without the marker was overwritten")
	}
}
