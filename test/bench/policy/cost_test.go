package policy

import "testing"

// A garbage collection takes as long as many writes: half of one too many would
// be a cost that nobody has.
func TestCPUIsCountedFromOneCollectionToAnother(t *testing.T) {
	for name, c := range map[string]struct {
		cost cost
		want float64
	}{
		"two whole ones":          {cost{cpus: []float64{1, 1, 9, 1, 9, 1, 1, 9, 1}, collections: []float64{3, 3, 4, 4, 5, 5, 5, 6, 6}}, (1 + 9 + 1 + 1 + 9) / 5.},
		"two that end at once":    {cost{cpus: []float64{1, 18, 1, 9}, collections: []float64{3, 5, 5, 6}}, (1 + 9) / 2.},
		"only the end of one":     {cost{cpus: []float64{1, 5, 1, 1}, collections: []float64{3, 4, 4, 4}}, 2},
		"none":                    {cost{cpus: []float64{1, 2}, collections: []float64{3, 3}}, 1.5},
		"one just before, unseen": {cost{cpus: []float64{9, 1, 9}, collections: []float64{4, 4, 5}}, 19 / 3.},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.cost.cpu(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestTheUncertaintyIsTheStandardErrorOfTheMean(t *testing.T) {
	if got := (ratios{1, 2, 3, 4}).String(); got != "2.500 ± 0.645 [1.00 2.00 3.00 4.00]" {
		t.Error(got)
	}
}
