package rig

import (
	"os"
	"strconv"
	"testing"
)

// soakEnv turns the long tests on: 1 for all their rounds, a fraction for a share
// of them. seedEnv is where random ones begin, so that a share need not always be
// the same.
const (
	soakEnv = "NODEWARDEN_SOAK"
	seedEnv = "NODEWARDEN_SEED"
)

// Soak skips a long test unless it was asked for, and says how many of its rounds
// to play: all of them or fewer, and at least one.
func Soak(t *testing.T, all int) int {
	t.Helper()
	set := os.Getenv(soakEnv)
	if set == "" {
		t.Skipf("takes long; set %s=1, or less for a share of its %d rounds", soakEnv, all)
	}
	share, err := strconv.ParseFloat(set, 64)
	if err != nil || share <= 0 || share > 1 {
		t.Fatalf("%s is %q, want a number above 0, and 1 at most", soakEnv, set)
	}
	return max(1, int(share*float64(all)))
}

// Seed is where the random histories of a long test begin.
func Seed(t *testing.T) uint64 {
	t.Helper()
	set := os.Getenv(seedEnv)
	if set == "" {
		return 1000
	}
	seed, err := strconv.ParseUint(set, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, want a number", seedEnv, set)
	}
	return seed
}
