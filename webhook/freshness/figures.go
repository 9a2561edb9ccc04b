package freshness

import "time"

// figures are what one scrape shows.
type figures struct {
	// synced is whether nodes have been listed; without it nothing else is known.
	synced bool
	// age is how old the picture is.
	age time.Duration

	watched, noReady, stalled, longUnknown int
	// named are the stalled nodes, unless there are too many to name.
	named   []stalledNode
	writers writers
}

type stalledNode struct {
	name, writer string
	age          time.Duration
}

// look judges every node at the instant that the picture shows.
func (p *picture) look(o Options) figures {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shows.IsZero() {
		return figures{}
	}
	now := p.ear.time()
	shows := earliest(p.shows, now) // our idea of the time may have been corrected since
	f := figures{synced: true, age: now.Sub(shows), watched: len(p.known), writers: p.writers.recent(now)}
	for name, n := range p.known {
		f.count(name, n, shows, o)
	}
	if f.stalled > o.MaxNamedNodes {
		f.named = nil
	}
	return f
}

func (f *figures) count(name string, n node, now time.Time, o Options) {
	switch n.at(now, o.StalledAfter) {
	case noReady:
		f.noReady++
	case stalled:
		f.stalled++
		if f.stalled <= o.MaxNamedNodes {
			f.named = append(f.named, stalledNode{name: name, writer: label(n.writer), age: n.age(now)})
		}
	case longUnknown:
		f.longUnknown++
	case fresh, unknown: // as it should be
	}
}
