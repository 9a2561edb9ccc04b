package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a Kubernetes minor version. The zero Version is that of an API
// server recent enough for everything here.
type Version struct{ Major, Minor int }

// Since when API servers do what is relied on here.
var (
	// matchConditionsSince is when webhooks got matchConditions for good. Before,
	// they were behind a feature gate, and an API server without drops them.
	matchConditionsSince = Version{1, 30}
	// policiesSince is when ValidatingAdmissionPolicy is served at v1.
	policiesSince = Version{1, 30}
	// staticSince is when API servers load admission objects from files without
	// a feature gate having to be turned on.
	staticSince = Version{1, 37}
)

// ParseVersion reads a version as 1.37, v1.37 or v1.37.2+vendor.
func ParseVersion(s string) (Version, error) {
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) < 2 {
		return Version{}, fmt.Errorf("kubernetes version %q: want major.minor, such as 1.37", s)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return Version{}, fmt.Errorf("kubernetes version %q: major %q is no number; want a version such as 1.37", s, parts[0])
	}
	// Some vendors report a minor such as 37+.
	minor, err := strconv.Atoi(strings.TrimSuffix(parts[1], "+"))
	if err != nil {
		return Version{}, fmt.Errorf("kubernetes version %q: minor %q is no number; want a version such as 1.37", s, parts[1])
	}
	return Version{major, minor}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) below(w Version) bool {
	return v != Version{} && (v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor)
}
