package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// stamp is where component-base keeps the version that programs report.
const stamp = "k8s.io/component-base/version."

// compile builds a static program. Neither the machine nor the moment shows in it.
func compile(ctx context.Context, program, platform, to string, o options) error {
	state := "clean"
	if strings.HasSuffix(o.version, "-dirty") {
		state = "dirty"
	}
	flags := []string{
		"-s", "-w", "-buildid=",
		"-X", stamp + "gitVersion=" + o.version, "-X", stamp + "gitCommit=" + o.commit, "-X", stamp + "gitTreeState=" + state,
		"-X", stamp + "buildDate=" + o.created.UTC().Format(time.RFC3339),
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(flags, " "), "-o", to,
		"github.com/nodewarden/nodewarden/cmd/"+program)
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s (run this in a clone of the repository): %w\n%s", platform, err, out)
	}
	return nil
}
