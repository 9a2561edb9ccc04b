package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// marker ends what is written by hand.
const marker = "<!-- Everything below is written by make generate from what the programs register. -->\n"

// split parts a page into what is written by hand, marker included, and the lists.
func split(page string) (head, lists string, err error) {
	head, lists, found := strings.Cut(page, marker)
	if !found {
		return "", "", fmt.Errorf("the line that ends the part written by hand is gone; put it back: %s", marker)
	}
	return head + marker, lists, nil
}

// metric is one line of a list.
type metric struct {
	name, kind, help string
	labels           []string
}

// render is the lists of all parts.
func render(parts []part) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		metrics, err := of(p)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.title, err)
		}
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | what it says |\n|---|---|---|---|\n", p.title)
		for _, m := range metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, quoted(m.labels), strings.ReplaceAll(m.help, "|", `\|`))
		}
	}
	return b.String(), nil
}

func quoted(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return "`" + strings.Join(labels, "`, `") + "`"
}

// of returns the metrics that a part registers, in order of name.
func of(p part) ([]metric, error) {
	r := &recorder{}
	if err := p.register(r); err != nil {
		return nil, err
	}
	var metrics []metric
	for _, c := range r.collectors {
		found, err := describe(c)
		if err != nil {
			return nil, err
		}
		metrics = append(metrics, found...)
	}
	slices.SortFunc(metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return metrics, nil
}

// recorder is a registry that only remembers who registered.
type recorder struct{ collectors []prometheus.Collector }

// Register remembers c.
func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}

// MustRegister remembers all of cs.
func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	r.collectors = append(r.collectors, cs...)
}

// Unregister is never called by a program of ours.
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// describe returns what c can export.
func describe(c prometheus.Collector) ([]metric, error) {
	kinds, err := kindsOf(c)
	if err != nil {
		return nil, err
	}
	descs := make(chan *prometheus.Desc)
	go func() { defer close(descs); c.Describe(descs) }()
	var all []metric
	for d := range descs {
		m, perr := parse(d)
		if perr != nil {
			err = perr
		}
		if m.kind = kinds[d.String()]; m.kind == "" {
			m.kind = usualKind(c, m.name)
		}
		all = append(all, m)
	}
	return all, err
}

// kindsOf returns the types of the samples that c gives right now.
func kindsOf(c prometheus.Collector) (map[string]string, error) {
	samples := make(chan prometheus.Metric)
	go func() { defer close(samples); c.Collect(samples) }()
	kinds := map[string]string{}
	var failed error
	for s := range samples {
		var d dto.Metric
		if err := s.Write(&d); err != nil {
			failed = err
		}
		kinds[s.Desc().String()] = kindOf(&d)
	}
	return kinds, failed
}

func kindOf(d *dto.Metric) string {
	switch {
	case d.Counter != nil:
		return "counter"
	case d.Histogram != nil:
		return "histogram"
	case d.Summary != nil:
		return "summary"
	default:
		return "gauge"
	}
}

// usualKind is the type of a metric that has no samples yet.
func usualKind(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec:
		return "histogram"
	case *prometheus.SummaryVec:
		return "summary"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// A Desc tells what it holds only as text.
var descText = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{(.*)\}\}$`)

func parse(d *prometheus.Desc) (metric, error) {
	found := descText.FindStringSubmatch(d.String())
	if found == nil {
		return metric{}, fmt.Errorf("a metric describes itself in a way that is new to us: %s", d)
	}
	m := metric{}
	var err error
	if m.name, err = strconv.Unquote(found[1]); err != nil {
		return m, err
	}
	if m.help, err = strconv.Unquote(found[2]); err != nil {
		return m, err
	}
	if found[3] != "" {
		m.labels = strings.Split(found[3], ",")
	}
	return m, nil
}
