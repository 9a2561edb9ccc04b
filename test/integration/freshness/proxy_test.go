package freshness

import (
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// proxy stands between a client and the API server and can stop forwarding
// without closing anything, as a network that has lost its way does.
type proxy struct {
	target   string
	listener net.Listener

	mu    sync.Mutex
	conns []net.Conn
	gate  *gate // of connections from now on
}

// gate lets bytes pass, or not.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while open
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// between starts a proxy to where cfg leads, and returns it with a way through it.
func between(t *testing.T, cfg *rest.Config) (*proxy, *rest.Config) {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target.Host, listener: l, gate: &gate{}}
	go p.serve()
	t.Cleanup(p.close)
	through := rest.CopyConfig(cfg)
	through.Host = "https://" + l.Addr().String()
	return p, through
}

func (p *proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		g := p.gate
		p.mu.Unlock()
		go forward(g, out, in)
		go forward(g, in, out)
	}
}

func forward(g *gate, to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		g.pass()
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

// freeze stops the connections that there are; thaw lets them go on where they
// stopped. New ones pass only where the way is free for them.
func (p *proxy) freeze(newOnesPass bool) (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	frozen := p.gate
	frozen.freeze()
	if newOnesPass {
		p.gate = &gate{}
	}
	return frozen.thaw
}

func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.thaw()
	errs := []error{p.listener.Close()}
	for _, c := range p.conns {
		errs = append(errs, c.Close())
	}
	_ = errors.Join(errs...) // most are closed already
}
