package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// network lets one node of many in this process lose its connections: a file
// named like the node in a folder cuts it off, and its removal mends it.
type network struct {
	dir string

	mu   sync.Mutex
	cut  map[string]bool
	open map[string]map[net.Conn]bool
}

// watchEvery is how soon a cut or a mend takes effect.
const watchEvery = 50 * time.Millisecond

// newNetwork watches dir until ctx ends. Without a folder nobody is ever cut.
func newNetwork(ctx context.Context, dir string) (*network, error) {
	n := &network{dir: dir, open: map[string]map[net.Conn]bool{}}
	if dir == "" {
		return n, nil
	}
	if err := n.look(); err != nil {
		return nil, fmt.Errorf("--cut-dir: %w", err)
	}
	go func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := n.look(); err != nil {
					fmt.Fprintln(os.Stderr, "--cut-dir:", err)
				}
			}
		}
	}()
	return n, nil
}

func (n *network) look() error {
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		return err
	}
	cut := map[string]bool{}
	for _, e := range entries {
		cut[e.Name()] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for node := range cut {
		for c := range n.open[node] {
			_ = c.Close() // the connection is to break
		}
		delete(n.open, node)
	}
	return nil
}

// dial connects on behalf of one node.
func (n *network) dial(node string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.cut[node] {
			_ = c.Close() // it was never used
			return nil, fmt.Errorf("node %s is cut off", node)
		}
		if n.open[node] == nil {
			n.open[node] = map[net.Conn]bool{}
		}
		n.open[node][c] = true
		return tracked{c, func() { n.forget(node, c) }}, nil
	}
}

func (n *network) forget(node string, c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open[node], c)
}

type tracked struct {
	net.Conn
	forget func()
}

func (t tracked) Close() error {
	t.forget()
	return t.Conn.Close()
}

// hostIP is this machine's first address beyond the loopback, or empty. A
// kubelet that has none looks its node's name up instead, which takes seconds
// for a name that nobody knows.
func hostIP() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}
