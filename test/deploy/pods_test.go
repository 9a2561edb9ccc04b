package deploy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

// Nothing runs containers here. What stands in for a kubelet starts the real
// program with the arguments of the pod, on loopback, with its volumes in a
// folder; what stands in for kube-proxy listens on the Service's address.

// process is one replica of a Deployment.
type process struct {
	*controlplane.Process
	// ports are the addresses on which its named ports are reached.
	ports map[string]string
	dir   string
}

// start runs one replica of a Deployment that the cluster holds.
func (c *cluster) start(deployment string) *process {
	c.Helper()
	d, err := c.admin.AppsV1().Deployments(namespace).Get(c.ctx, deployment, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return c.startPod(deployment, d.Spec.Template.Spec)
}

func (c *cluster) startPod(binary string, spec corev1.PodSpec) *process {
	c.Helper()
	path, err := guard.Build(c.ctx, c.ControlPlane, binary)
	if err != nil {
		c.Fatal(err)
	}
	p := &process{ports: map[string]string{}, dir: c.TempDir()}
	container := spec.Containers[0]
	for _, v := range spec.Volumes {
		c.mount(p.dir, v, container.VolumeMounts)
	}
	account := c.ServiceAccount(namespace, spec.ServiceAccountName)
	args := append(p.onLoopback(c.T, container), "--kubeconfig="+c.kubeconfigOf(account))
	ready := func(ctx context.Context) error { return answers(ctx, "http://"+p.ports["metrics"]+"/readyz") }
	if p.Process, err = c.ControlPlane.Run(c.ctx, controlplane.Command{Name: binary, Path: path, Args: args, Ready: ready}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("%s wrote last:\n%s", p.Name, p.Tail(20))
		}
		p.Kill()
	})
	return p
}

func (c *cluster) kubeconfigOf(user *rest.Config) string {
	c.Helper()
	path, err := c.Kubeconfig(user)
	if err != nil {
		c.Fatal(err)
	}
	return path
}

// mount puts a volume's files below dir, where the container expects them
// below the root.
func (c *cluster) mount(dir string, v corev1.Volume, mounts []corev1.VolumeMount) {
	c.Helper()
	var at string
	for _, m := range mounts {
		if m.Name == v.Name {
			at = filepath.Join(dir, m.MountPath)
		}
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		c.Fatal(err)
	}
	files := map[string][]byte{}
	switch {
	case v.ConfigMap != nil:
		held, err := c.admin.CoreV1().ConfigMaps(namespace).Get(c.ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		for name, text := range held.Data {
			files[name] = []byte(text)
		}
	case v.Secret != nil:
		// A kubelet waits for a Secret, too.
		c.eventually("the Secret "+v.Secret.SecretName+" is there", func(ctx context.Context) error {
			held, err := c.admin.CoreV1().Secrets(namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, item := range v.Secret.Items {
				if files[item.Path] = held.Data[item.Key]; len(files[item.Path]) == 0 {
					return fmt.Errorf("it has no %s yet", item.Key)
				}
			}
			return nil
		})
	case v.EmptyDir == nil:
		c.Fatalf("volume %s is of a kind that this test does not know", v.Name)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o600); err != nil {
			c.Fatal(err)
		}
	}
}

// onLoopback are the container's arguments with its ports on loopback and its
// files in p's folder. Nothing else may change.
func (p *process) onLoopback(t *testing.T, container corev1.Container) []string {
	t.Helper()
	var args []string
	for _, arg := range container.Args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case strings.HasSuffix(name, "bind-address"):
			port := free(t)
			for _, declared := range container.Ports {
				if ":"+strconv.Itoa(int(declared.ContainerPort)) == value {
					p.ports[declared.Name] = port
				}
			}
			arg = name + "=" + port
		case strings.HasPrefix(value, "/"):
			arg = name + "=" + filepath.Join(p.dir, value)
		}
		args = append(args, arg)
	}
	for _, declared := range container.Ports {
		if p.ports[declared.Name] == "" {
			t.Fatalf("no argument opens the port %s (%d) that the container declares: %q", declared.Name, declared.ContainerPort, container.Args)
		}
	}
	return args
}

func free(t *testing.T) string {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

func answers(ctx context.Context, url string) error {
	_, err := get(ctx, url)
	return err
}

// proxy stands in for kube-proxy: connections to a Service's address go to one
// replica after the other.
type proxy struct {
	mu    sync.Mutex
	to    []string
	next  int
	conns map[net.Conn]bool
}

// expose forwards the webhook's Service to replicas until the test ends.
func (c *cluster) expose(replicas ...*process) *proxy {
	c.Helper()
	s, err := c.admin.CoreV1().Services(namespace).Get(c.ctx, "nodewarden-webhook", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	port := s.Spec.Ports[0]
	l, err := net.Listen("tcp", net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port.Port))))
	if err != nil {
		c.Skipf("cannot listen on the Service's address, which takes root on Linux: %v", err)
	}
	p := &proxy{conns: map[net.Conn]bool{}}
	for _, r := range replicas {
		p.to = append(p.to, r.ports[port.TargetPort.StrVal])
	}
	c.Cleanup(func() { _ = l.Close(); p.cut() })
	go p.serve(l)
	return p
}

// route sends new connections to these replicas only.
func (p *proxy) route(replicas ...*process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = nil
	for _, r := range replicas {
		p.to = append(p.to, r.ports["webhook"])
	}
}

func (p *proxy) serve(l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go p.forward(in)
	}
}

func (p *proxy) pick() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.to) == 0 {
		return ""
	}
	p.next++
	return p.to[p.next%len(p.to)]
}

func (p *proxy) forward(in net.Conn) {
	defer p.forget(in)
	to := p.pick()
	if to == "" {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.conns[in], p.conns[out] = true, true
	p.mu.Unlock()
	defer p.forget(out)
	go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
	_, _ = io.Copy(in, out)
}

func (p *proxy) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// deployment is a rendered Deployment as its type.
func deployment(t *testing.T, all objects, name string) *appsv1.Deployment {
	t.Helper()
	o := all[key("Deployment", namespace, name)]
	if o == nil {
		t.Fatalf("no Deployment %s", name)
	}
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, d, true); err != nil {
		t.Fatal(err)
	}
	return d
}
