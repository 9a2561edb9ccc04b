//go:build unix && !linux

package controlplane

import (
	"errors"
	"syscall"
	"time"
)

// diesWithUs has only the process group to offer: other kernels know no signal
// for a parent's death, so roles of our binary rely on their lifeline.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// unmountBelow has nothing to do: the kubelets that mount volumes need Linux.
func unmountBelow(string) error { return nil }

// Usage is what a process has used so far.
type Usage struct {
	RSS     int64         // resident memory now, in bytes
	PeakRSS int64         // the most it ever was, in bytes
	CPU     time.Duration // user and system time
}

// Usage needs /proc.
func (p *Process) Usage() (Usage, error) { return Usage{}, errors.ErrUnsupported }
