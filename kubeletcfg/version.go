package kubeletcfg

import (
	"fmt"
	"regexp"
	"strconv"
)

// Basis says how we know what a kubelet of some version does.
type Basis string

const (
	// FromLoader: compared with the configuration loader of kubelet 1.37.2.
	FromLoader Basis = "kubelet 1.37.2"
	// Inferred: an older kubelet, judged by the 1.37.2 loader, the fields that
	// its own configuration type has and the history of its feature gates.
	Inferred Basis = "inferred from kubelet 1.37.2"
	// FromKEP: 1.38 and later. No loader was there to compare with.
	FromKEP Basis = "KEP-6371, not a loader"
)

const (
	oldestMinor = 30 // the first with --config-dir out of alpha
	loaderMinor = 37 // the loader we compare with
	kepMinor    = 38 // the first with enableNodeLease, says the KEP
)

// Version is a kubelet version as far as configuration depends on it.
type Version struct {
	text  string
	minor int
	// alpha: cut before the feature freeze of its minor version.
	alpha bool
}

var (
	versionForm = regexp.MustCompile(`^v?(0|[1-9]\d*)\.(0|[1-9]\d*)(?:\.(?:0|[1-9]\d*))?(\+|[-+][0-9A-Za-z.+~_-]+)?$`)
	alphaSuffix = regexp.MustCompile(`^-alpha\.\d+`)
)

// ParseVersion reads a kubelet version as `kubelet --version`, a Node's
// nodeInfo or a vendor writes it: 1.37, v1.37.2, v1.37.2-gke.100, 1.37.2+k3s1,
// v1.38.0-alpha.1. What it cannot read, or does not know, is an error: a wrong
// guess would turn a warning into an outage.
func ParseVersion(text string) (Version, error) {
	m := versionForm.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("version %q cannot be read; write it like 1.37.2 or v1.37.2-vendor.1", text)
	}
	minor, err := strconv.Atoi(m[2])
	if err != nil || m[1] != "1" {
		return Version{}, fmt.Errorf("version %q is not a version 1.x", text)
	}
	if minor < oldestMinor {
		return Version{}, fmt.Errorf("version %q is older than 1.%d, the oldest whose loader is modelled here", text, oldestMinor)
	}
	return Version{text: text, minor: minor, alpha: alphaSuffix.MatchString(m[3])}, nil
}

// String returns the version as it was given.
func (v Version) String() string { return v.text }

// Basis says what verdicts for v rest on.
func (v Version) Basis() Basis {
	switch {
	case v.knowsNodeLease():
		return FromKEP
	case v.minor == loaderMinor:
		return FromLoader
	}
	return Inferred
}

// knowsNodeLease: is there a field enableNodeLease, and its gate? An alpha of
// 1.38 may be older than the change, so it counts as not knowing it.
func (v Version) knowsNodeLease() bool {
	return v.minor > kepMinor || v.minor == kepMinor && !v.alpha
}
