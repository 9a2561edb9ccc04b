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

// A run must not fail by chance, nor pass whatever it measures.
func TestOnlyAMeanClearlyAboveTheLimitIsAboveIt(t *testing.T) {
	for name, c := range map[string]struct {
		sets ratios
		want bool
	}{
		"below":                {ratios{1.08, 1.09, 1.07, 1.08}, false},
		"above, but who knows": {ratios{1.05, 1.19, 1.02, 1.16}, false},
		"above for certain":    {ratios{1.12, 1.13, 1.11, 1.12}, true},
		"far above, noisily":   {ratios{1.25, 1.45, 1.30, 1.50}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.sets.above(1.1); got != c.want {
				t.Errorf("%t of %s", got, c.sets)
			}
		})
	}
}
