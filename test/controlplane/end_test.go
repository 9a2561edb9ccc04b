package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// fateEnv tells this test binary to start a control plane with everything in
// it, print what it started, and then to meet its fate.
const fateEnv = "NODEWARDEN_TEST_FATE"

// started is what the process that meets its fate prints before.
type started struct {
	Dir  string
	PIDs map[string]int
}

// meet is the process that meets its fate.
func meet(how string) {
	s, err := startEverything()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		os.Exit(1)
	}
	switch how {
	case "panics":
		go func() { panic("as it was told") }()
	case "exits":
		os.Exit(3)
	}
	select {}
}

func startEverything() (started, error) {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return started{}, err
	}
	manager, err := cp.StartControllerManager(ctx, controlplane.CMOptions{})
	if err != nil {
		return started{}, err
	}
	hollow, err := cp.StartHollow(ctx, controlplane.HollowOptions{Prefix: "n", Count: 2})
	if err != nil {
		return started{}, err
	}
	ours, err := cp.Run(ctx, controlplane.Command{Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		return started{}, err
	}
	s := started{Dir: cp.Dir(), PIDs: map[string]int{
		"etcd": cp.Etcd().PID(), "API server": cp.APIServer().PID(),
		"controller manager": manager.PID(), "hollow kubelets": hollow.PID(), "a program of ours": ours.PID(),
	}}
	if canRunKubelet() {
		kubelet, err := cp.StartKubelet(ctx, controlplane.KubeletOptions{Name: "real"})
		if err != nil {
			return started{}, err
		}
		s.PIDs["kubelet"] = kubelet.PID()
	}
	return s, nil
}

// canRunKubelet reports whether this is a machine for a real kubelet.
func canRunKubelet() bool {
	u, err := user.Current()
	return err == nil && u.Uid == "0" && runtime.GOOS == "linux"
}

func TestEverythingEndsWithItsStarterHoweverThatEnds(t *testing.T) {
	skipIfShort(t)
	for name, c := range map[string]struct {
		how    string
		signal os.Signal
	}{
		"killed":      {how: "waits", signal: syscall.SIGKILL},
		"interrupted": {how: "waits", signal: os.Interrupt},
		"terminated":  {how: "waits", signal: syscall.SIGTERM},
		"panics":      {how: "panics"},
		"exits":       {how: "exits"},
	} {
		t.Run(name, func(t *testing.T) {
			s := letMeet(t, c.how, c.signal)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			for what, pid := range s.PIDs {
				eventually(ctx, t, func() error {
					if lives(pid) {
						return fmt.Errorf("%s, process %d, still lives", what, pid)
					}
					return nil
				})
			}
			eventually(ctx, t, func() error {
				if _, err := os.Stat(s.Dir); os.IsNotExist(err) {
					return nil
				}
				return fmt.Errorf("%s is still there", s.Dir)
			})
			eventually(ctx, t, func() error { return nobodyMentions(s.Dir) })
		})
	}
}

// letMeet runs a process to its end, and returns what it had started.
func letMeet(t *testing.T, how string, signal os.Signal) started {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fateEnv+"="+how)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("it said nothing: %v\n%s", err, said.String())
	}
	var s started
	if err := json.Unmarshal(line, &s); err != nil {
		t.Fatal(err)
	}
	if signal != nil {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("it ended well, which was not its fate")
	}
	return s
}

// lives reports whether a process runs. One that has ended and only waits for
// somebody to ask how does not.
func lives(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && runtime.GOOS != "linux"
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// nobodyMentions finds a process whose command line still speaks of dir, such
// as the one that removed it.
func nobodyMentions(dir string) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.Contains(string(data), dir) {
			return fmt.Errorf("%s: %q", f, data)
		}
	}
	return nil
}

func TestOurBinaryTidiesUpAndEndsWithItsLifeline(t *testing.T) {
	cp, ctx := shared(t)
	binary, err := controlplane.Binary(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	config, err := cp.Kubeconfig(cp.Kubelet("on-a-line"))
	if err != nil {
		t.Fatal(err)
	}
	held, line, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	cmd := exec.CommandContext(ctx, binary, "hollow", "--names=on-a-line", "--kubeconfig="+config)
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch, "NODEWARDEN_LIFELINE=3")
	cmd.ExtraFiles = []*os.File{held}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	untilTrue(ctx, t, clientOf(t, cp.Admin()), "on-a-line")
	if left, err := os.ReadDir(scratch); err != nil || len(left) == 0 {
		t.Errorf("it keeps nothing in %s, %v, so this test shows nothing", scratch, err)
	}
	if err := line.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it did not end well: %v", err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestAnInterruptFromTheKeyboardReachesOnlyTheStarter(t *testing.T) {
	cp, _ := shared(t)
	for _, p := range []*controlplane.Process{cp.Etcd(), cp.APIServer()} {
		group, err := syscall.Getpgid(p.PID())
		if err != nil || group != p.PID() {
			t.Errorf("%s is in process group %d, %v", p.Name, group, err)
		}
	}
}
