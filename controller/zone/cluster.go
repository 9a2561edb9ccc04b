package zone

import (
	"cmp"
	"slices"
	"time"
)

// Health is how one node enters the count of its zone.
type Health string

const (
	// Up is a node whose Ready is True.
	Up Health = "Up"
	// Down is every other node, one without a Ready condition included.
	Down Health = "Down"
	// Uncounted is a node that carries the Excluded label.
	Uncounted Health = "Uncounted"
	// Skipped is a node that could not be evaluated. It is not counted, but
	// its zone does not forget its state for that.
	Skipped Health = "Skipped"
)

// counts says that the node is either up or down.
func (h Health) counts() bool { return h == Up || h == Down }

// Node is what a Cluster knows of a node.
type Node struct {
	Zone   string
	Health Health
}

// Pace says when a turn may be handed out beyond what the rates allow.
type Pace struct {
	// Settle is how long no node may have gone down or come up: nodes that fail
	// together are counted together before the first of them is tainted, and
	// nodes that come back together are spared together.
	Settle time.Duration
	// Patience is the longest a node waits for that.
	Patience time.Duration
}

// Cluster is all nodes by zone, and the queue of those waiting to be tainted.
// The zero value is not usable; it is not safe for concurrent use.
type Cluster struct {
	limits Limits
	pace   Pace

	nodes      map[string]Node
	zones      map[string]*zone
	tickets    map[string]ticket
	issued     uint64
	lastChange time.Time
	everywhere bool
}

type zone struct {
	health  map[Health]int
	state   State
	bucket  bucket
	waiting []ticket
}

// ticket is one node's place in line. Its number is kept until the node is
// tainted or up, through failed writes and moves between zones.
type ticket struct {
	id     string
	number uint64
	since  time.Time
	queued bool
}

// New returns an empty cluster.
func New(l Limits, p Pace) *Cluster {
	return &Cluster{limits: l, pace: p, nodes: map[string]Node{}, zones: map[string]*zone{}, tickets: map[string]ticket{}}
}

// Set adds a node or updates it. A node that changes its zone takes its place in
// line along.
func (c *Cluster) Set(id string, n Node, now time.Time) {
	old, known := c.nodes[id]
	if known && old == n {
		return
	}
	z := c.zoneOf(n.Zone, now)
	z.health[n.Health]++
	c.nodes[id] = n
	if !known {
		return
	}
	if old.Health != n.Health && old.Health.counts() && n.Health.counts() {
		c.lastChange = now
	}
	if t, ok := c.tickets[id]; ok && t.queued && old.Zone != n.Zone {
		c.zones[old.Zone].drop(t)
		z.insert(t)
	}
	c.discount(old)
}

// Skip takes a known node out of the count until it is Set again.
func (c *Cluster) Skip(id string, now time.Time) {
	if n, ok := c.nodes[id]; ok {
		n.Health = Skipped
		c.Set(id, n, now)
	}
}

// Remove forgets a node, its place in line included.
func (c *Cluster) Remove(id string) {
	n, ok := c.nodes[id]
	if !ok {
		return
	}
	c.Leave(id)
	delete(c.nodes, id)
	c.discount(n)
}

// discount takes one node off a zone, and the zone off the cluster with its last.
func (c *Cluster) discount(n Node) {
	z := c.zones[n.Zone]
	if z.health[n.Health]--; z.health[n.Health] == 0 {
		delete(z.health, n.Health)
	}
	if len(z.health) == 0 {
		delete(c.zones, n.Zone)
	}
}

func (c *Cluster) zoneOf(key string, now time.Time) *zone {
	z, ok := c.zones[key]
	if !ok {
		z = &zone{health: map[Health]int{}, state: Initial, bucket: fullBucket(c.rateOf(Initial, 0), now)}
		c.zones[key] = z
	}
	return z
}

func (c *Cluster) rateOf(s State, counted int) float32 {
	if c.everywhere {
		return 0
	}
	return c.limits.RateOf(s, counted)
}

func (z *zone) counted() int { return z.health[Up] + z.health[Down] }

// Everywhere says that nodes are counted and all of them are down. Nothing is
// tainted then, and what was tainted is to be undone.
func (c *Cluster) Everywhere() bool { return c.everywhere }

// Change is a zone that went from one state to another.
type Change struct {
	Zone     string
	From, To State
	Rate     float32
}

// Outcome is what an assessment changed. The zero Outcome changed nothing.
type Outcome struct {
	// Entered says that from now on Everywhere holds, Left that it ended.
	Entered, Left bool
	// Changes are the zones whose state changed, by name.
	Changes []Change
}

// Assess brings states and rates in line with the counts. A rate changes with the
// state of its zone and not with its size.
func (c *Cluster) Assess(now time.Time) Outcome {
	var out Outcome
	if all, known := c.allDown(); known && all != c.everywhere {
		c.everywhere = all
		out.Entered, out.Left = all, !all
	}
	for key, z := range c.zones {
		next := c.next(z)
		if next != z.state {
			out.Changes = append(out.Changes, Change{Zone: key, From: z.state, To: next, Rate: c.rateOf(next, z.counted())})
		} else if !out.Entered && !out.Left {
			continue
		}
		z.state = next
		z.bucket = z.bucket.changed(c.rateOf(next, z.counted()), now)
	}
	if out.Entered {
		c.dismiss()
	}
	slices.SortFunc(out.Changes, func(a, b Change) int { return cmp.Compare(a.Zone, b.Zone) })
	return out
}

// allDown says whether there are counted nodes and all of them are down. That is
// not known while the only nodes that would be counted could not be evaluated.
func (c *Cluster) allDown() (all, known bool) {
	counted, up, skipped := 0, 0, 0
	for _, z := range c.zones {
		counted, up, skipped = counted+z.counted(), up+z.health[Up], skipped+z.health[Skipped]
	}
	return counted > 0 && up == 0, counted > 0 || skipped == 0
}

func (c *Cluster) next(z *zone) State {
	switch {
	case z.counted() > 0:
		return c.limits.StateOf(z.health[Up], z.health[Down])
	case z.health[Skipped] > 0:
		return z.state
	}
	return Initial
}

// Wait gives a known node a place in line, or back the one it had before its turn
// came to nothing.
func (c *Cluster) Wait(id string, now time.Time) {
	n, known := c.nodes[id]
	t, ok := c.tickets[id]
	if !known || c.everywhere || ok && t.queued {
		return
	}
	if !ok {
		c.issued++
		t = ticket{id: id, number: c.issued, since: now}
		c.lastChange = now
	}
	t.queued = true
	c.tickets[id] = t
	c.zones[n.Zone].insert(t)
}

// Leave gives up a node's place in line: it has been tainted, or is up again.
func (c *Cluster) Leave(id string) {
	t, ok := c.tickets[id]
	if !ok {
		return
	}
	delete(c.tickets, id)
	if t.queued {
		c.zones[c.nodes[id].Zone].drop(t)
	}
}

// dismiss sends everybody home.
func (c *Cluster) dismiss() {
	clear(c.tickets)
	for _, z := range c.zones {
		z.waiting = nil
	}
}

// Next hands out the turn of the node that has waited longest where a token is
// there, and takes that token. Without such a node it says how long to wait;
// negative means until something changes.
func (c *Cluster) Next(now time.Time) (id string, ok bool, wait time.Duration) {
	var best *zone
	wait = -1
	for _, z := range c.zones {
		if len(z.waiting) == 0 {
			continue
		}
		z.bucket = z.bucket.refilled(now)
		w := z.bucket.wait()
		if w >= 0 {
			w = max(w, c.unsettled(z.waiting[0], now))
		}
		switch {
		case w == 0 && (best == nil || z.waiting[0].number < best.waiting[0].number):
			best = z
		case w > 0 && (wait < 0 || w < wait):
			wait = w
		}
	}
	if best == nil {
		return "", false, wait
	}
	return best.pop(c), true, 0
}

// unsettled is how long the count is still likely to change.
func (c *Cluster) unsettled(t ticket, now time.Time) time.Duration {
	quiet := c.lastChange.Add(c.pace.Settle).Sub(now)
	patience := t.since.Add(c.pace.Patience).Sub(now)
	return max(0, min(quiet, patience))
}

func (z *zone) pop(c *Cluster) string {
	t := z.waiting[0]
	z.waiting = z.waiting[1:]
	z.bucket = z.bucket.take()
	t.queued = false
	c.tickets[t.id] = t
	return t.id
}

func (z *zone) insert(t ticket) {
	i, _ := z.find(t)
	z.waiting = slices.Insert(z.waiting, i, t)
}

func (z *zone) drop(t ticket) {
	if i, ok := z.find(t); ok {
		z.waiting = slices.Delete(z.waiting, i, i+1)
	}
}

func (z *zone) find(t ticket) (int, bool) {
	return slices.BinarySearchFunc(z.waiting, t, func(a, b ticket) int { return cmp.Compare(a.number, b.number) })
}

// Figure is one zone as metrics and logs show it.
type Figure struct {
	Zone    string
	State   State
	Rate    float32
	Counted int
	Down    int
	Waiting int
}

// Percent is the share of counted nodes that are up, from 0 to 100; 100 where
// none is counted.
func (f Figure) Percent() float64 {
	if f.Counted == 0 {
		return 100
	}
	return 100 * float64(f.Counted-f.Down) / float64(f.Counted)
}

// ZoneOf is the zone a node was last Set to, empty for an unknown node.
func (c *Cluster) ZoneOf(id string) string { return c.nodes[id].Zone }

// Figures are all zones, by name.
func (c *Cluster) Figures() []Figure {
	out := make([]Figure, 0, len(c.zones))
	for key, z := range c.zones {
		out = append(out, Figure{Zone: key, State: z.state, Rate: z.bucket.rate, Counted: z.counted(), Down: z.health[Down], Waiting: len(z.waiting)})
	}
	slices.SortFunc(out, func(a, b Figure) int { return cmp.Compare(a.Zone, b.Zone) })
	return out
}
