package freshness

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nodewarden/nodewarden/contract"
)

// picture is what is known of all nodes. A reflector keeps it current.
//
// The picture shows an instant, which is not always the present: a watch that
// is frozen, or that catches up on an hour of events, shows a past one. Nodes
// are judged at the instant that the picture shows. Otherwise every node would
// look stalled to a process that has merely gone deaf.
type picture struct {
	ear *ear

	mu      sync.Mutex
	known   map[string]node
	writers writers
	// asked is when the list was asked for that the next Replace brings, by
	// our clock.
	asked time.Time
	// shows is the instant that the picture shows, by the API server's clock;
	// zero before the first list.
	shows time.Time
}

var (
	_ cache.TransformingStore      = &picture{}
	_ cache.ReflectorBookmarkStore = &picture{}
)

func newPicture(e *ear) *picture {
	return &picture{ear: e, known: map[string]node{}, writers: writers{}}
}

// asking notes that a list is being asked for.
func (p *picture) asking() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = p.ear.now()
}

// Add takes in a node that is new.
func (p *picture) Add(obj any) error { return p.Update(obj) }

// Update takes in a node that changed. The event is as old as the youngest
// entry of its managedFields, however late it arrives.
func (p *picture) Update(obj any) error {
	n, err := asNode(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.ear.time()
	p.known[n.Name] = p.take(n, now)
	p.advance(newest(n), now)
	return nil
}

// take returns what to know of n from now on.
func (p *picture) take(n *corev1.Node, now time.Time) node {
	named := plausible(contract.ReadyWriters(n.ManagedFields), now)
	p.writers.saw(named, now)
	return read(n, named).following(p.known[n.Name], now)
}

// advance moves on the instant that the picture shows. Nothing shows what is
// ahead of the API server's clock: a stamp by another server, say, or what we
// took for the time before our idea of it was corrected.
func (p *picture) advance(to, now time.Time) {
	p.shows = latest(earliest(p.shows, now), earliest(to, now))
}

// Delete forgets a node.
func (p *picture) Delete(obj any) error {
	n, err := asNode(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, n.Name)
	return nil
}

// Replace takes in a complete list, which is at least as young as the question.
func (p *picture) Replace(list []any, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.ear.time()
	next := make(map[string]node, len(list))
	for _, obj := range list {
		n, err := asNode(obj)
		if err != nil {
			return err
		}
		next[n.Name] = p.take(n, now)
	}
	p.known = next
	p.advance(p.ear.at(p.asked), now)
	return nil
}

// Bookmark takes in the API server's word that nothing has happened, which it
// gives about once a minute. One that was held up on the way is mistaken by as
// much; connections that hold anything up for long are dropped before that.
func (p *picture) Bookmark(string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.ear.time()
	p.advance(now, now)
	return nil
}

// Resync has nothing to do: every scrape looks at every node.
func (p *picture) Resync() error { return nil }

// Transformer trims nodes while they are being listed.
func (p *picture) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		n, err := asNode(obj)
		if err != nil {
			return nil, err
		}
		return trim(n), nil
	}
}

func (p *picture) synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.shows.IsZero()
}

func asNode(obj any) (*corev1.Node, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("a watch of nodes brought a %T", obj)
	}
	return n, nil
}

// newest is the youngest stamp that the API server left on n.
func newest(n *corev1.Node) time.Time {
	var t time.Time
	for i := range n.ManagedFields {
		if at := n.ManagedFields[i].Time; at != nil {
			t = latest(t, at.Time)
		}
	}
	return t
}
