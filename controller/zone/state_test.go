package zone

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// stock are the limits that the flags default to.
var stock = Limits{Rate: 0.1, SecondaryRate: 0.01, LargeZone: 50, UnhealthyShare: 0.55}

// published is the table of docs/lifecycle.md, row by row.
var published = []struct {
	counted, down int
	state         State
	rate          string
}{
	{1, 0, Normal, "0.1"},
	{1, 1, FullDisruption, "0.1"},
	{2, 1, Normal, "0.1"},
	{3, 2, Normal, "0.1"},
	{3, 3, FullDisruption, "0.1"},
	{4, 3, PartialDisruption, "0"},
	{5, 3, PartialDisruption, "0"},
	{6, 3, Normal, "0.1"},
	{10, 5, Normal, "0.1"},
	{10, 6, PartialDisruption, "0"},
	{20, 11, PartialDisruption, "0"},
	{50, 40, PartialDisruption, "0"},
	{51, 40, PartialDisruption, "0.01"},
	{60, 32, Normal, "0.1"},
	{60, 33, PartialDisruption, "0.01"},
	{60, 40, PartialDisruption, "0.01"},
	{60, 60, FullDisruption, "0.1"},
}

func TestAZoneIsInTheStateThatThePublishedTableSays(t *testing.T) {
	for _, row := range published {
		t.Run(fmt.Sprintf("%d of %d down", row.down, row.counted), func(t *testing.T) {
			state := stock.StateOf(row.counted-row.down, row.down)
			if rate := fmt.Sprint(stock.RateOf(state, row.counted)); state != row.state || rate != row.rate {
				t.Errorf("got %s at %s, want %s at %s", state, rate, row.state, row.rate)
			}
		})
	}
}

func TestTheTableInTheDocsIsTheTableOfTheTests(t *testing.T) {
	doc, err := os.ReadFile("../../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| nodes counted | of them down | state | NoExecute taints per second |\n|---|---|---|---|\n")
	for _, row := range published {
		fmt.Fprintf(&want, "| %d | %d | %s | %s |\n", row.counted, row.down, row.state, row.rate)
	}
	if !strings.Contains(string(doc), want.String()) {
		t.Errorf("docs/lifecycle.md does not contain this table; paste it there:\n%s", want.String())
	}
}

func TestTheKeyOfAZone(t *testing.T) {
	cases := map[string]struct {
		labels map[string]string
		want   string
	}{
		"is empty without labels":                 {nil, ""},
		"joins region and zone with a NUL":        {map[string]string{"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}, "r:\x00:z"},
		"works with a zone alone":                 {map[string]string{"topology.kubernetes.io/zone": "z"}, ":\x00:z"},
		"works with a region alone":               {map[string]string{"topology.kubernetes.io/region": "r"}, "r:\x00:"},
		"lets the beta label win":                 {map[string]string{"topology.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/zone": "old"}, ":\x00:old"},
		"lets the beta label win even when empty": {map[string]string{"topology.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/zone": ""}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Key(c.labels); got != c.want {
				t.Errorf("Key(%v) = %q, want %q", c.labels, got, c.want)
			}
		})
	}
}
