package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func skipIfShort(t *testing.T) {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
}

func TestAControlPlaneIsReadyInUnderTenSeconds(t *testing.T) {
	skipIfShort(t)
	var took []time.Duration
	for range 3 { // others may be busy on this machine: one good start in three will do
		start := time.Now()
		cp, err := controlplane.Start(t.Context(), controlplane.Options{})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
		if err := cp.Stop(); err != nil {
			t.Fatal(err)
		}
		if took[len(took)-1] < 10*time.Second {
			return
		}
	}
	t.Errorf("starts took %s", took)
}

func TestTwoRunSideBySideAndShareNothing(t *testing.T) {
	skipIfShort(t)
	ctx := t.Context()
	var pair [2]*controlplane.ControlPlane
	var errs [2]error
	var wg sync.WaitGroup
	for i := range pair {
		wg.Go(func() { pair[i], errs[i] = controlplane.Start(ctx, controlplane.Options{}) })
	}
	wg.Wait()
	for i := range pair {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(func() { _ = pair[i].Stop() })
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "only-in-the-first"}}
	if _, err := clientOf(t, pair[0].Admin()).CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := clientOf(t, pair[1].Admin()).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("the second has %d nodes, %v", len(list.Items), err)
	}
	stranger := pair[0].Admin()
	stranger.Host = pair[1].URL()
	if _, err := clientOf(t, stranger).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the second accepts users of the first")
	}
}

func TestAStartThatFailsSaysWhySoonAndLeavesNothing(t *testing.T) {
	skipIfShort(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	script := filepath.Join(t.TempDir(), "kube")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho deep in thought\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		opts controlplane.Options
		want []string
	}{
		"an API server flag that does not exist": {
			opts: controlplane.Options{APIServerArgs: []string{"--no-such-flag"}},
			want: []string{"kube-apiserver ended", "unknown flag: --no-such-flag"},
		},
		"a feature gate that does not exist": {
			opts: controlplane.Options{FeatureGates: map[string]bool{"NoSuchGate": true}},
			want: []string{"kube-apiserver ended", "NoSuchGate"},
		},
		"an admission file that does not exist": {
			opts: controlplane.Options{AdmissionConfig: "/does/not/exist.yaml"},
			want: []string{"kube-apiserver ended", "/does/not/exist.yaml"},
		},
		"a port in use": {
			opts: controlplane.Options{Port: taken.Addr().(*net.TCPAddr).Port},
			want: []string{"kube-apiserver ended", "address already in use"},
		},
		"an etcd flag that does not exist": {
			opts: controlplane.Options{EtcdArgs: []string{"--no-such-flag"}},
			want: []string{"etcd ended", "no-such-flag"},
		},
		"a component that never gets ready": {
			opts: controlplane.Options{Binary: script, StartTimeout: 2 * time.Second},
			want: []string{"etcd was not ready in time", "connection refused", "deep in thought"},
		},
		"a binary that does not exist": {
			opts: controlplane.Options{Binary: "/does/not/exist"},
			want: []string{"start etcd", "/does/not/exist"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := children(t)
			start := time.Now()
			cp, err := controlplane.Start(t.Context(), c.opts)
			if err == nil {
				_ = cp.Stop()
				t.Fatal("it started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("it took %s to say so", took)
			}
			if after := children(t); !slices.Equal(before, after) {
				t.Errorf("child processes before %v, after %v", before, after)
			}
		})
	}
}

func TestACallerThatGivesUpIsNotHeld(t *testing.T) {
	skipIfShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := controlplane.Start(ctx, controlplane.Options{}); err == nil {
		t.Fatal("it started in a tenth of a second")
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it held the caller for %s", took)
	}
}

func TestStopLeavesNothingBehind(t *testing.T) {
	skipIfShort(t)
	before := children(t)
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(children(t)) == len(before) {
		t.Fatal("no child processes although a control plane runs")
	}
	for range 2 { // twice is as good as once
		if err := cp.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(cp.Dir()); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", cp.Dir(), err)
	}
	if after := children(t); !slices.Equal(before, after) {
		t.Errorf("child processes before %v, after %v", before, after)
	}
}

func TestAFolderThatWasNamedIsKept(t *testing.T) {
	skipIfShort(t)
	dir := t.TempDir()
	first, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "from-before"}}
	if _, err := clientOf(t, first.Admin()).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := controlplane.ForTest(t, controlplane.Options{Dir: dir})
	if _, err := clientOf(t, second.Admin()).CoreV1().Nodes().Get(t.Context(), "from-before", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAnAPIServerThatWasKilledComesBackWithItsData(t *testing.T) {
	skipIfShort(t)
	cp := controlplane.ForTest(t, controlplane.Options{})
	client := clientOf(t, cp.Admin())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "survivor"}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cp.KillAPIServer()
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "survivor", metav1.GetOptions{}); err == nil {
		t.Fatal("a killed API server answers")
	}
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "survivor", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := cp.RestartAPIServer(t.Context(), "--no-such-flag"); err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("a restart with a bad flag: %v", err)
	}
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Errorf("the bad flag of one restart reached the next: %v", err)
	}
}

// children are the processes that this one has started and not yet reaped.
func children(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		t.Skip("needs /proc")
	}
	var pids []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it ended in the meantime
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == fmt.Sprint(os.Getpid()) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}
