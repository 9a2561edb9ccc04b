package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// pass goes over all nodes once every node monitor period and asks for a look at
// those that should have had one. It compares and writes nothing, so a cluster in
// which nothing was missed pays next to nothing for it.
type pass struct{ *nodes }

// Start runs until the context ends.
func (p pass) Start(ctx context.Context) error {
	ticker := p.clock.NewTicker(p.options.NodeMonitorPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			p.once(ctx)
		}
	}
}

func (p pass) once(ctx context.Context) {
	started := p.clock.Now()
	list, err := p.list(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "could not pass over the nodes")
		return
	}
	for _, name := range p.memory.missed(list, started, p.options.NodeMonitorPeriod) {
		p.looks.add(name)
	}
	p.metrics.Unleased(p.memory.unleased(p.options.NodeMonitorGracePeriod))
	p.metrics.Passed(p.clock.Since(started), p.options.NodeMonitorPeriod)
	if err := p.fresh.check(ctx); err != nil {
		log.FromContext(ctx).Error(err, "could not tell whether the cache of nodes is current", "age", p.fresh.age())
	}
}
