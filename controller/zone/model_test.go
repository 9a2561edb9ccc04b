package zone

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// model says the same as Cluster the slow way: it keeps bare lists, counts from
// scratch on every question and integrates rates over their whole history.
type model struct {
	limits     Limits
	pace       Pace
	nodes      map[string]Node
	state      map[string]State
	rates      map[string][]segment
	line       []modelTicket
	out        map[string]modelTicket
	issued     int
	last       time.Time
	everywhere bool
}

type modelTicket struct {
	id     string
	number int
	since  time.Time
}

// segment is a stretch of time with one rate, and the tokens it began with.
type segment struct {
	from   time.Time
	rate   float32
	tokens float64
}

func newModel(l Limits, p Pace) *model {
	return &model{limits: l, pace: p, nodes: map[string]Node{}, state: map[string]State{}, rates: map[string][]segment{}, out: map[string]modelTicket{}}
}

func (m *model) count(zone string, h Health) (n int) {
	for _, node := range m.nodes {
		if node.Zone == zone && node.Health == h {
			n++
		}
	}
	return n
}

func (m *model) exists(zone string) bool {
	for _, node := range m.nodes {
		if node.Zone == zone {
			return true
		}
	}
	return false
}

func (m *model) tidy() {
	for zone := range m.state {
		if !m.exists(zone) {
			delete(m.state, zone)
			delete(m.rates, zone)
		}
	}
}

func (m *model) set(id string, n Node, now time.Time) {
	if old := m.nodes[id].Health; old == Up && n.Health == Down || old == Down && n.Health == Up {
		m.last = now
	}
	m.nodes[id] = n
	m.tidy()
	if _, ok := m.state[n.Zone]; !ok {
		m.state[n.Zone] = Initial
		rate := m.limits.Rate
		if m.everywhere {
			rate = 0
		}
		tokens := 0.0
		if rate > 0 {
			tokens = 1
		}
		m.rates[n.Zone] = []segment{{now, rate, tokens}}
	}
}

func (m *model) remove(id string) {
	m.leave(id)
	delete(m.nodes, id)
	m.tidy()
}

func (m *model) leave(id string) {
	m.line = slices.DeleteFunc(m.line, func(t modelTicket) bool { return t.id == id })
	delete(m.out, id)
}

func (m *model) tokens(zone string, now time.Time) float64 {
	s := m.rates[zone][len(m.rates[zone])-1]
	if s.rate <= 0 {
		return s.tokens
	}
	return min(1, s.tokens+now.Sub(s.from).Seconds()*float64(s.rate))
}

func (m *model) granted(zone string, now time.Time) bool {
	return m.rate(zone) > 0 && m.tokens(zone, now) > 1-1e-9
}

func (m *model) rate(zone string) float32 {
	return m.rates[zone][len(m.rates[zone])-1].rate
}

func (m *model) setRate(zone string, rate float32, now time.Time) {
	if m.rate(zone) == rate {
		return
	}
	tokens := 0.0
	if m.granted(zone, now) && rate > 0 {
		tokens = 1
	}
	m.rates[zone] = append(m.rates[zone], segment{now, rate, tokens})
}

func (m *model) assess(now time.Time) {
	counted, skipped := 0, 0
	full := true
	for zone := range m.state {
		u, d := m.count(zone, Up), m.count(zone, Down)
		counted, skipped = counted+u+d, skipped+m.count(zone, Skipped)
		if u+d > 0 && u > 0 {
			full = false
		}
	}
	was := m.everywhere
	switch {
	case counted > 0:
		m.everywhere = full
	case skipped == 0:
		m.everywhere = false
	}
	for zone, old := range m.state {
		u, d := m.count(zone, Up), m.count(zone, Down)
		state := old
		switch {
		case u+d == 0 && m.count(zone, Skipped) > 0:
		case u+d == 0:
			state = Initial
		case u == 0:
			state = FullDisruption
		case d >= 3 && float32(d)/float32(u+d) >= m.limits.UnhealthyShare:
			state = PartialDisruption
		default:
			state = Normal
		}
		m.state[zone] = state
		if state == old && was == m.everywhere {
			continue
		}
		rate := m.limits.Rate
		if state == PartialDisruption {
			rate = 0
			if u+d > int(m.limits.LargeZone) {
				rate = m.limits.SecondaryRate
			}
		}
		if m.everywhere {
			rate = 0
		}
		m.setRate(zone, rate, now)
	}
	if m.everywhere && !was {
		m.line, m.out = nil, map[string]modelTicket{}
	}
}

func (m *model) wait(id string, now time.Time) {
	if _, ok := m.nodes[id]; !ok || m.everywhere || slices.ContainsFunc(m.line, func(t modelTicket) bool { return t.id == id }) {
		return
	}
	t, ok := m.out[id]
	if !ok {
		m.issued++
		t = modelTicket{id, m.issued, now}
		m.last = now
	}
	delete(m.out, id)
	m.line = append(m.line, t)
	slices.SortFunc(m.line, func(a, b modelTicket) int { return a.number - b.number })
}

func (m *model) next(now time.Time) (string, bool) {
	seen := map[string]bool{}
	for i, t := range m.line {
		zone := m.nodes[t.id].Zone
		if seen[zone] {
			continue
		}
		seen[zone] = true
		settled := now.Sub(m.last) >= m.pace.Settle || now.Sub(t.since) >= m.pace.Patience
		if !settled || !m.granted(zone, now) {
			continue
		}
		m.rates[zone] = append(m.rates[zone], segment{now, m.rate(zone), 0})
		m.line = slices.Delete(m.line, i, i+1)
		m.out[t.id] = t
		return t.id, true
	}
	return "", false
}

func TestTheClusterAgreesWithASlowAndObviousModel(t *testing.T) { agree(t, 1, 200, 500) }

func TestSoakTheClusterAgreesWithASlowAndObviousModel(t *testing.T) {
	if os.Getenv("NODEWARDEN_SOAK") == "" {
		t.Skip("a million histories; set NODEWARDEN_SOAK=1")
	}
	agree(t, 1000, 1_000_000, 50)
}

// agree plays so many histories of so many steps, from a seed on.
func agree(t *testing.T, seed uint64, histories, steps int) {
	t.Helper()
	for range histories {
		if msg := compare(seed, steps); msg != "" {
			t.Fatalf("seed %d: %s", seed, msg)
		}
		seed++
	}
}

// compare plays one random history to both and describes the first difference.
func compare(seed uint64, length int) string {
	r := rand.New(rand.NewPCG(seed, 0))
	limits := Limits{
		Rate:           []float32{0, 0.1, 1, 2.5}[r.IntN(4)],
		SecondaryRate:  []float32{0, 0.01, 1}[r.IntN(3)],
		LargeZone:      int32(r.IntN(6)),
		UnhealthyShare: []float32{0.3, 0.55, 1}[r.IntN(3)],
	}
	pace := Pace{Settle: time.Duration(r.IntN(3)) * time.Second, Patience: time.Duration(r.IntN(9)) * time.Second}
	fast, slow := New(limits, pace), newModel(limits, pace)
	zones, ids := 1+r.IntN(4), 1+r.IntN(12)
	now := noon
	for step := range length {
		id := fmt.Sprint("n", r.IntN(ids))
		switch r.IntN(10) {
		case 0, 1, 2, 3:
			n := Node{Zone: fmt.Sprint("z", r.IntN(zones)), Health: []Health{Up, Up, Down, Down, Down, Uncounted, Skipped}[r.IntN(7)]}
			fast.Set(id, n, now)
			slow.set(id, n, now)
		case 4:
			if r.IntN(4) == 0 {
				fast.Remove(id)
				slow.remove(id)
			}
		case 5, 6:
			fast.Wait(id, now)
			slow.wait(id, now)
		case 7:
			fast.Leave(id)
			slow.leave(id)
		default:
			now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
		if r.IntN(3) > 0 {
			fast.Assess(now)
			slow.assess(now)
		}
		if msg := differ(fast, slow, now, r.IntN(2) == 0); msg != "" {
			return fmt.Sprintf("step %d: %s", step, msg)
		}
	}
	return ""
}

func differ(fast *Cluster, slow *model, now time.Time, turn bool) string {
	if turn {
		a, aok, wait := fast.Next(now)
		b, bok := slow.next(now)
		if a != b || aok != bok {
			return fmt.Sprintf("turn of %q (%v), the model says %q (%v)", a, aok, b, bok)
		}
		if !aok && wait == 0 {
			return "no turn, and no wait either"
		}
	}
	if fast.Everywhere() != slow.everywhere {
		return fmt.Sprintf("everywhere %v, the model says %v", fast.Everywhere(), slow.everywhere)
	}
	figures := fast.Figures()
	if len(figures) != len(slow.state) {
		return fmt.Sprintf("%d zones, the model says %d", len(figures), len(slow.state))
	}
	for _, f := range figures {
		if f.State != slow.state[f.Zone] || f.Rate != slow.rate(f.Zone) || f.Down != slow.count(f.Zone, Down) || f.Counted != f.Down+slow.count(f.Zone, Up) {
			return fmt.Sprintf("%+v, the model says %s at %v", f, slow.state[f.Zone], slow.rate(f.Zone))
		}
	}
	return ""
}

// A wait that is too short makes the caller spin, one that is too long delays a
// turn: the token must be there when the wait is over, and not a moment earlier.
func TestTheWaitEndsExactlyWithTheToken(t *testing.T) {
	for _, rate := range []float32{0.01, 0.1, 0.3, 1, 7, 1000} {
		b := fullBucket(rate, noon).take()
		after := b.refilled(noon.Add(b.wait()))
		if !after.ready() {
			t.Errorf("rate %v: no token after waiting %v", rate, b.wait())
		}
		if early := b.refilled(noon.Add(b.wait() * 99 / 100)); early.ready() {
			t.Errorf("rate %v: a token after 99 %% of %v", rate, b.wait())
		}
	}
}
