package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// scratch makes a folder for everything that kubelets leave behind, temporary
// files included, and returns how to remove it.
func scratch(role string) (string, func(), error) {
	dir, err := os.MkdirTemp("", role+"-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() { discard(dir) }, os.Setenv("TMPDIR", dir)
}

// discard removes dir although kubelets in this process go on writing to it.
func discard(dir string) {
	var err error
	for range 20 {
		unmount(dir)
		if err = os.RemoveAll(dir); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "left behind:", err)
}

// unmount lets go of the volumes of pods, and of dir, which a kubelet mounts on
// itself. What stays mounted makes the removal fail, and is reported there.
func unmount(dir string) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return // no Linux, no mounts
	}
	defer func() { _ = f.Close() }()
	var points []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && strings.HasPrefix(fields[1]+"/", dir+"/") {
			points = append(points, fields[1])
		}
	}
	for _, m := range slices.Backward(points) {
		_ = syscall.Unmount(m, syscall.MNT_DETACH)
	}
}
