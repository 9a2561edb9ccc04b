package zone

// State is the health of one zone. The value is public: it labels metrics and
// appears in logs.
type State string

const (
	// Initial is a zone none of whose nodes has been counted yet.
	Initial State = "Initial"
	// Normal is a zone in which at most a few nodes are down.
	Normal State = "Normal"
	// PartialDisruption is a zone in which too many nodes are down for all of
	// them to be broken.
	PartialDisruption State = "PartialDisruption"
	// FullDisruption is a zone in which no node is up.
	FullDisruption State = "FullDisruption"
)

// fewNodes is how many nodes of a zone may be down without that being called a
// disruption of the zone, whatever share of it they are.
const fewNodes = 2

// Limits are the rates, in nodes per second and zone, and where they apply.
type Limits struct {
	// Rate is for a zone that is Normal, Initial, or down while others are up.
	Rate float32
	// SecondaryRate is for a large zone in PartialDisruption; a small one
	// gets none.
	SecondaryRate float32
	// LargeZone is the number of counted nodes above which a zone is large.
	LargeZone int32
	// UnhealthyShare, from 0 to 1, is the share of nodes that are down at
	// which a zone is in PartialDisruption.
	UnhealthyShare float32
}

// StateOf is the state of a zone with so many counted nodes up and down.
func (l Limits) StateOf(up, down int) State {
	switch {
	case up == 0 && down > 0:
		return FullDisruption
	case down > fewNodes && float32(down)/float32(up+down) >= l.UnhealthyShare:
		return PartialDisruption
	}
	return Normal
}

// RateOf is how many nodes per second a zone in this state may lose. It holds
// while at least one zone is not in FullDisruption; if none is, no zone loses
// any.
func (l Limits) RateOf(s State, counted int) float32 {
	if s != PartialDisruption {
		return l.Rate
	}
	if counted > int(l.LargeZone) {
		return l.SecondaryRate
	}
	return 0
}
