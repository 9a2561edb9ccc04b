package webhook

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ourCPU is the CPU time that this process has used.
func ourCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// childCPU is the CPU time that a running child has used, in ticks of 10 ms.
func childCPU(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The second field is a name in parentheses, which may hold spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// startOn starts cmd bound to one core.
func startOn(b *testing.B, core int, cmd *exec.Cmd) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		b.Fatal(err)
	}
	only.Set(core)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	if err := cmd.Start(); err != nil { // the child inherits the binding
		b.Fatal(err)
	}
}

// keepOff moves all threads of this process away from a core, where there is another.
func keepOff(b *testing.B, core int) {
	b.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			b.Fatal(err)
		}
		var set unix.CPUSet
		if unix.SchedGetaffinity(id, &set) != nil || set.Count() < 2 {
			continue
		}
		set.Clear(core)
		_ = unix.SchedSetaffinity(id, &set)
	}
}
