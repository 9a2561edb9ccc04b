package freshness

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodewarden/nodewarden/contract"
)

const (
	// maxWriters bounds how many external writers get a label of their own.
	maxWriters = 50
	// maxLabel bounds a manager's name in a label, in bytes.
	maxLabel = 96
	// otherWriters is the label of those beyond.
	otherWriters = "other"
	// forgotten is how long an external writer is listed after its last write: one
	// that was retired does not stay for as long as the process lives.
	forgotten = 30 * 24 * time.Hour
	// maxAhead bounds how far API servers' clocks are ahead of each other. A stamp
	// beyond was made up, or by a clock that was wrong, and would be the latest for
	// as long as it stands.
	maxAhead = 24 * time.Hour
	// unrecorded is the label of a last writer that managedFields do not name.
	unrecorded = "unrecorded"
)

// expected are the managers of the core components that write Ready, and the
// names under which an API server merges old entries. The rest is external.
var expected = map[string]bool{
	"kubelet": true, "kube-controller-manager": true, "nodewarden-controller": true,
	"before-first-apply": true, "ancient-changes": true,
}

// writers knows when each external writer last wrote Ready, as far as any
// node's managedFields have told this process: a kubelet that takes over all
// fields of Ready again takes the detector's name off the node.
type writers map[string]time.Time

// plausible leaves out the writers that wrote in the future.
func plausible(named []contract.ReadyWriter, now time.Time) []contract.ReadyWriter {
	return slices.DeleteFunc(named, func(n contract.ReadyWriter) bool { return n.At.Sub(now) > maxAhead })
}

// saw notes the writers that one node names. The label of one that is forgotten
// is another's.
func (w writers) saw(named []contract.ReadyWriter, now time.Time) {
	for _, n := range named {
		if expected[n.Manager] || now.Sub(n.At) > forgotten {
			continue
		}
		name := label(n.Manager)
		if _, known := w[name]; !known && len(w) >= maxWriters {
			name = otherWriters
		}
		w[name] = latest(w[name], n.At)
	}
}

// recent forgets the others and returns a copy.
func (w writers) recent(now time.Time) writers {
	maps.DeleteFunc(w, func(_ string, last time.Time) bool { return now.Sub(last) > forgotten })
	return maps.Clone(w)
}

// label returns a manager's name as a label value: of valid UTF-8, on one line,
// and short. Clients choose these names.
func label(manager string) string {
	if manager == "" {
		return unrecorded
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(manager, ""))
	if len(clean) <= maxLabel {
		return clean
	}
	return strings.ToValidUTF8(clean[:maxLabel], "")
}
