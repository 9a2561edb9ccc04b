package zone

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// life drives a cluster through a story and collects who got a turn, and when.
type life struct {
	*Cluster
	now   time.Time
	turns []string
}

func begin(l Limits) *life { return &life{Cluster: New(l, Pace{}), now: noon} }

func (l *life) set(zone string, h Health, ids ...string) {
	for _, id := range ids {
		l.Set(id, Node{Zone: zone, Health: h}, l.now)
		if h == Down || h == Uncounted {
			continue
		}
		l.Leave(id)
	}
	l.Assess(l.now)
}

func (l *life) down(zone string, ids ...string) {
	l.set(zone, Down, ids...)
	for _, id := range ids {
		l.Wait(id, l.now)
	}
}

// pass lets time go by and takes every turn as soon as it is there.
func (l *life) pass(d time.Duration) {
	for end := l.now.Add(d); ; {
		id, ok, wait := l.Next(l.now)
		if ok {
			l.turns = append(l.turns, fmt.Sprintf("%s@%d", id, int(math.Round(l.now.Sub(noon).Seconds()))))
			l.Leave(id)
			continue
		}
		if wait < 0 || l.now.Add(wait).After(end) {
			l.now = end
			return
		}
		l.now = l.now.Add(wait)
	}
}

func names(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

func TestTurns(t *testing.T) {
	stories := map[string]struct {
		limits Limits
		tell   func(*life)
		want   []string
	}{
		"the first node goes at once, the next a tenth of a node per second later": {stock, func(l *life) {
			l.set("z", Up, names("up", 9)...)
			l.down("z", "a", "b", "c")
			l.pass(25 * time.Second)
		}, []string{"a@0", "b@10", "c@20"}},
		"nodes go in the order in which they went down": {stock, func(l *life) {
			l.set("z", Up, names("up", 9)...)
			l.down("z", "c")
			l.down("z", "a")
			l.down("z", "b")
			l.pass(25 * time.Second)
		}, []string{"c@0", "a@10", "b@20"}},
		"zones have a rate of their own": {stock, func(l *life) {
			l.set("y", Up, names("y", 9)...)
			l.set("z", Up, names("z", 9)...)
			l.down("y", "a", "b")
			l.down("z", "c", "d")
			l.pass(15 * time.Second)
		}, []string{"a@0", "c@0", "b@10", "d@10"}},
		"a rate of zero means none, not one": {Limits{LargeZone: 50, UnhealthyShare: 0.55}, func(l *life) {
			l.set("z", Up, "up")
			l.down("z", "a")
			l.pass(time.Hour)
		}, nil},
		"a zone that was stopped goes on at exactly one per second": {Limits{Rate: 1, LargeZone: 50, UnhealthyShare: 0.55}, func(l *life) {
			l.set("z", Up, "up", "up2")
			l.down("z", "a", "b", "c")
			l.pass(time.Minute)
			l.set("z", Up, "c")
			l.pass(5 * time.Second)
		}, []string{"a@61", "b@62"}},
		"a small zone in partial disruption loses nobody": {stock, func(l *life) {
			l.set("z", Up, "up")
			l.down("z", "a", "b", "c")
			l.pass(time.Hour)
		}, nil},
		"a large zone in partial disruption loses one in a hundred seconds": {stock, func(l *life) {
			l.set("z", Up, names("up", 20)...)
			for _, id := range names("d", 40) {
				l.Set(id, Node{Zone: "z", Health: Down}, l.now)
			}
			l.down("z", names("d", 40)...)
			l.pass(201 * time.Second)
		}, []string{"d0@0", "d1@100", "d2@200"}},
		"a zone wholly down is emptied at the full rate while another is up": {stock, func(l *life) {
			l.set("y", Up, "up")
			l.down("z", "a", "b", "c")
			l.pass(15 * time.Second)
		}, []string{"a@0", "b@10"}},
		"nobody goes while every zone is down": {stock, func(l *life) {
			l.set("y", Up, "a")
			l.set("z", Up, "b")
			l.down("y", "a")
			l.down("z", "b")
			l.pass(time.Hour)
		}, []string{"a@0"}[:0]},
		"when full disruption ends the nodes that stay down wait a whole interval": {stock, func(l *life) {
			l.Set("a", Node{"z", Down}, l.now)
			l.Set("b", Node{"z", Down}, l.now)
			l.Set("c", Node{"z", Down}, l.now)
			l.down("z", "a", "b", "c")
			l.pass(time.Minute)
			l.set("z", Up, "c")
			l.down("z", "a", "b")
			l.pass(25 * time.Second)
		}, []string{"a@70", "b@80"}},
		"a node that moves to another zone keeps its place in line": {stock, func(l *life) {
			l.set("y", Up, names("y", 9)...)
			l.set("z", Up, names("z", 9)...)
			l.down("y", "x", "a")
			l.pass(time.Second)
			l.down("z", "w", "b")
			l.pass(time.Second)
			l.set("z", Down, "a")
			l.pass(20 * time.Second)
		}, []string{"x@0", "w@1", "a@11", "b@21"}},
		"a node that comes back up leaves the line": {stock, func(l *life) {
			l.set("z", Up, names("up", 9)...)
			l.down("z", "a", "b", "c")
			l.pass(time.Second)
			l.set("z", Up, "b")
			l.pass(15 * time.Second)
		}, []string{"a@0", "c@10"}},
		"a zone of excluded nodes loses them though all are down": {stock, func(l *life) {
			l.set("z", Uncounted, "a", "b")
			l.Wait("a", l.now)
			l.Wait("b", l.now)
			l.pass(15 * time.Second)
		}, []string{"a@0", "b@10"}},
		"so does one whose last counted node goes while all are down": {stock, func(l *life) {
			l.set("z", Uncounted, "a")
			l.down("z", "last")
			l.Remove("last")
			l.set("z", Uncounted, "a")
			l.Wait("a", l.now)
			l.pass(15 * time.Second)
		}, []string{"a@10"}},
	}
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			l := begin(s.limits)
			s.tell(l)
			if !slices.Equal(l.turns, s.want) {
				t.Errorf("turns %v, want %v", l.turns, s.want)
			}
		})
	}
}

func TestNobodyIsTaintedBeforeThoseThatFailTogetherAreCounted(t *testing.T) {
	c := New(stock, Pace{Settle: 50 * time.Millisecond, Patience: 5 * time.Second})
	all := names("n", 6)
	now := noon
	for _, id := range all {
		c.Set(id, Node{"z", Up}, now)
	}
	c.Assess(now)
	for i, id := range all {
		c.Set(id, Node{"z", Down}, now)
		outcome := c.Assess(now)
		c.Wait(id, now)
		if last := i == len(all)-1; outcome.Entered != last {
			t.Errorf("after %d nodes Entered is %v", i+1, outcome.Entered)
		}
		if id, ok, _ := c.Next(now); ok {
			t.Errorf("%s got a turn while nodes were still failing", id)
		}
		now = now.Add(30 * time.Millisecond)
	}
	if _, ok, wait := c.Next(now.Add(time.Hour)); ok || wait >= 0 {
		t.Error("somebody gets a turn although every zone is down")
	}
}

func TestNobodyIsTaintedWhileNodesComeBackTogether(t *testing.T) {
	c := New(Limits{Rate: 1000, LargeZone: 50, UnhealthyShare: 0.55}, Pace{Settle: 50 * time.Millisecond, Patience: 5 * time.Second})
	all := names("n", 6)
	now := noon
	for _, id := range all {
		c.Set(id, Node{"z", Down}, now)
	}
	c.Assess(now)
	for _, id := range all {
		now = now.Add(40 * time.Millisecond)
		c.Set(id, Node{"z", Up}, now)
		c.Assess(now)
		c.Leave(id)
		for _, other := range all {
			if c.nodes[other].Health == Down {
				c.Wait(other, now)
			}
		}
		if id, ok, _ := c.Next(now.Add(39 * time.Millisecond)); ok {
			t.Errorf("%s got a turn while nodes were still coming back", id)
		}
	}
}

func TestSettlingEndsWithPatience(t *testing.T) {
	c := New(stock, Pace{Settle: 50 * time.Millisecond, Patience: time.Second})
	now := noon
	for i := range 100 {
		c.Set(fmt.Sprint("up", i), Node{"z", Up}, now)
	}
	for i := range 40 {
		id := fmt.Sprint("d", i)
		c.Set(id, Node{"z", Down}, now)
		c.Assess(now)
		c.Wait(id, now)
		if got, ok, _ := c.Next(now); ok {
			if got != "d0" || now.Sub(noon) != time.Second {
				t.Errorf("%s got its turn after %v, want d0 after 1s", got, now.Sub(noon))
			}
			return
		}
		now = now.Add(40 * time.Millisecond)
	}
	t.Error("nobody got a turn")
}

func TestAZoneWithoutNodesDisappears(t *testing.T) {
	l := begin(stock)
	l.set("z9", Up, "a")
	l.set("", Up, "a")
	if f := l.Figures(); len(f) != 1 || f[0].Zone != "" {
		t.Errorf("figures %+v, want the zone without a name alone", f)
	}
	l.Remove("a")
	if f := l.Figures(); len(f) != 0 {
		t.Errorf("figures %+v after the last node went", f)
	}
}

func TestASkippedNodeIsNotCounted(t *testing.T) {
	l := begin(stock)
	l.set("z", Up, "a", "b")
	l.Skip("a", l.now)
	l.Assess(l.now)
	if f := l.Figures()[0]; f.Counted != 1 || f.Down != 0 {
		t.Errorf("%d counted, %d down; want 1 and 0", f.Counted, f.Down)
	}
}

func TestFullDisruptionEndsWithTheLastCountedNode(t *testing.T) {
	cases := map[string]struct {
		last func(*life)
		left bool
	}{
		"deleted":            {func(l *life) { l.Remove("a") }, true},
		"excluded":           {func(l *life) { l.Set("a", Node{"z", Uncounted}, l.now) }, true},
		"merely not judged":  {func(l *life) { l.Skip("a", l.now) }, false},
		"still there and up": {func(l *life) { l.Set("a", Node{"z", Up}, l.now) }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := begin(stock)
			l.set("z", Uncounted, "x")
			l.down("z", "a")
			if !l.Everywhere() {
				t.Fatal("the only node that counts is down, and nobody says so")
			}
			c.last(l)
			if out := l.Assess(l.now); out.Left != c.left || l.Everywhere() == c.left {
				t.Errorf("left: %v, everything down: %v; want %v and the contrary", out.Left, l.Everywhere(), c.left)
			}
		})
	}
}

func TestWhoFailedToBeTaintedKeepsHisPlaceAndPaysAgain(t *testing.T) {
	l := begin(stock)
	l.set("z", Up, names("up", 9)...)
	l.down("z", "a", "b")
	id, _, _ := l.Next(l.now)
	l.Wait(id, l.now)
	l.pass(15 * time.Second)
	if want := []string{"a@10"}; !slices.Equal(l.turns, want) {
		t.Errorf("turns %v, want %v", l.turns, want)
	}
}
