package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leading writes a kubeconfig that leads to an address, and returns the flag for it.
func (p *place) leading(t *testing.T, to string) string {
	t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://%s"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`, to)
	path := filepath.Join(p.folder, "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--kubeconfig=" + path
}

func TestReviewsDoNotWaitForAnAPIServerThatIsAway(t *testing.T) {
	p := newPlace(t)
	p.certify(t)
	r := start(t, append(p.flags(), "--drain=0s", p.leading(t, free(t)))...)
	eventually(t, func() error {
		if err := r.ready(); err == nil || !strings.Contains(err.Error(), "nodes are not listed yet") {
			return fmt.Errorf("readyz says %w", err)
		}
		return nil
	})
	if text, err := p.ask(r.address, goodWrite()); err != nil || !strings.Contains(text, `"allowed":true`) {
		t.Errorf("%v %s", err, text)
	}
	metrics := r.get(t, "/metrics")
	if !strings.Contains(metrics, "nodewarden_node_watch_synced 0") || strings.Contains(metrics, "nodewarden_stalled_nodes") {
		t.Errorf("figures about nodes that nobody has listed:\n%s", metrics)
	}
	begun := time.Now()
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.exit(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s to end", took)
	}
}

func TestWithoutAnAccountNodesAreNotWatched(t *testing.T) {
	for name, c := range map[string]struct {
		args, env []string
		says      string
	}{
		"outside of a pod":                         {says: "no metrics about stalled writers"},
		"in a pod without a service account":       {env: []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1"}, says: "no metrics about stalled writers"},
		"when told so, whatever the kubeconfig is": {args: []string{"--watch-nodes=false", "--kubeconfig=/no/such/file"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range c.env {
				key, value, _ := strings.Cut(e, "=")
				t.Setenv(key, value)
			}
			p := newPlace(t)
			p.certify(t)
			r := start(t, append(p.flags(), c.args...)...)
			eventually(t, r.ready)
			if strings.Contains(r.get(t, "/metrics"), "nodewarden_node_watch_synced") {
				t.Error("there are metrics about nodes")
			}
			eventually(t, func() error {
				if !strings.Contains(r.logged(), c.says) {
					return errors.New("the log does not say: " + c.says)
				}
				return nil
			})
		})
	}
}

func TestAKubeconfigThatCannotBeUsedIsAFault(t *testing.T) {
	p := newPlace(t)
	p.certify(t)
	r := start(t, append(p.flags(), "--kubeconfig=/no/such/file")...)
	if code := r.exit(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if said := r.logged(); !strings.Contains(said, "/no/such/file") || !strings.Contains(said, "--watch-nodes=false") {
		t.Errorf("it says %q", said)
	}
}
