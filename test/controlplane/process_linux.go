package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// diesWithUs asks the kernel to kill the child when we end. The child also gets
// a process group of its own: an interrupt from the keyboard reaches only us,
// and we end the children in order.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// unmountBelow lets go of the volumes that a real kubelet mounts below dir.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(points) {
		if err := syscall.Unmount(m, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var points []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			points = append(points, fields[1])
		}
	}
	return points, lines.Err()
}

// Usage is what a process has used so far.
type Usage struct {
	RSS     int64         // resident memory now, in bytes
	PeakRSS int64         // the most it ever was, in bytes
	CPU     time.Duration // user and system time
}

// clockTicks is the unit of the times in /proc: 100 a second on every Linux
// that Go runs on.
const clockTicks = 100

// Usage reads what the process has used so far from /proc.
func (p *Process) Usage() (Usage, error) { return usageOf(p.PID()) }

func usageOf(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	u := Usage{RSS: kibibytes(status, "VmRSS:"), PeakRSS: kibibytes(status, "VmHWM:")}
	// The second field is the program's name in parentheses, which may hold
	// anything; user and system time are the 14th and 15th.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return Usage{}, err
		}
		u.CPU += time.Duration(ticks) * time.Second / clockTicks
	}
	return u, nil
}

func kibibytes(status []byte, key string) int64 {
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64) // the kernel wrote it
			return n << 10
		}
	}
	return 0
}
