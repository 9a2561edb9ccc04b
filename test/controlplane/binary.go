package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// BinaryEnv names an environment variable with the path of a ready control
// plane binary. Without it the binary is built once and kept.
const BinaryEnv = "NODEWARDEN_KUBE"

// kubernetesVersion is what the build module pins and the binary reports.
const kubernetesVersion = "v1.37.2"

// buildFlags are the arguments of go build. Changing one of them compiles all
// of Kubernetes anew, everywhere.
var buildFlags = []string{
	"-trimpath",
	"-ldflags", strings.Join([]string{
		"-s", "-w",
		"-X", "k8s.io/component-base/version.gitVersion=" + kubernetesVersion,
		"-X", "k8s.io/component-base/version.gitMajor=1",
		"-X", "k8s.io/component-base/version.gitMinor=37",
		"-X", "k8s.io/component-base/version.buildDate=1970-01-01T00:00:00Z",
		"-X", "k8s.io/client-go/pkg/version.gitVersion=" + kubernetesVersion,
	}, " "),
}

// roles are the programs that the binary is, by the name it is called with.
var roles = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "hollow", "kubelet"}

// Binary returns the path of the control plane binary: the one that BinaryEnv
// names, or one built from test/controlplane/build and kept in the user's cache
// folder under a hash of everything it depends on. A first build takes five to
// ten minutes on two cores; progress hears of it every ten seconds. Of several
// processes that need the same binary one builds and the others wait.
func Binary(ctx context.Context, progress io.Writer) (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		return ready(path)
	}
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	dir, err := cacheDir(ctx, source)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "kube")
	now := time.Now()
	if err := os.Chtimes(binary, now, now); err == nil {
		return binary, nil // and marked as used
	}
	err = withLock(ctx, dir, progress, func() error {
		if _, err := os.Stat(binary); err == nil {
			return nil // somebody else built it while we waited
		}
		return build(ctx, source, binary, progress)
	})
	if err != nil {
		return "", fmt.Errorf("build the control plane: %w", err)
	}
	return binary, nil
}

func ready(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w: unset it to build one", BinaryEnv, err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s: %s is no program: name the file, or unset it to build one", BinaryEnv, path)
	}
	return path, nil
}

// sourceDir finds the build module: in the clone that we run in, or in the one
// that this file was compiled from.
func sourceDir() (string, error) {
	const inRepo = "test/controlplane/build"
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if isSource(filepath.Join(dir, inRepo)) {
			return filepath.Join(dir, inRepo), nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	_, file, _, _ := runtime.Caller(0)
	if dir := filepath.Join(filepath.Dir(file), "build"); isSource(dir) {
		return dir, nil
	}
	return "", fmt.Errorf("the control plane's source, %s, is neither in %s nor above it: run this in a clone of the repository, or set %s to a ready binary", inRepo, here, BinaryEnv)
}

func isSource(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(data), "module github.com/nodewarden/nodewarden/test/controlplane/build\n")
}

// cacheDir is where the binary of exactly this source, compiler and these
// flags belongs.
func cacheDir(ctx context.Context, source string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep the control plane binary: %w: set HOME, XDG_CACHE_HOME or %s", err, BinaryEnv)
	}
	sum, err := contentHash(ctx, source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, "nodewarden", "kube-"+sum)
	return dir, os.MkdirAll(dir, 0o755)
}

func contentHash(ctx context.Context, source string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = source
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go env GOVERSION: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s %q\n", strings.TrimSpace(string(version)), runtime.GOOS, runtime.GOARCH, buildFlags)
	files, err := fs.Glob(os.DirFS(source), "*")
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	for _, name := range files {
		if !isInput(name) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(data))
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// isInput tells what a build depends on from what happens to lie around.
func isInput(name string) bool {
	return name == "go.mod" || name == "go.sum" || filepath.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
}

// build compiles next to the destination and then renames, so that a binary
// that is there is whole.
func build(ctx context.Context, source, binary string, progress io.Writer) error {
	fmt.Fprintf(progress, "Building etcd, kube-apiserver and the rest of Kubernetes %s from source.\n"+
		"This happens once and takes 5 to 10 minutes on 2 cores, less when Go's build cache is warm.\n", kubernetesVersion)
	partial := fmt.Sprintf("%s.%d", binary, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // gone already after the rename
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build"}, buildFlags...), "-o", partial, ".")...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	start := time.Now()
	var out []byte
	var err error
	whileTelling(progress, "building the control plane", func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", source, err, lastLines(out, 20))
	}
	fmt.Fprintf(progress, "Built the control plane in %s: %s\n", time.Since(start).Round(time.Second), binary)
	if err := os.Rename(partial, binary); err != nil {
		return err
	}
	return forgetUnused(filepath.Dir(filepath.Dir(binary)), time.Now().Add(-keepUnused))
}

// keepUnused is how long a binary stays that nobody runs: branches come and go,
// and each may need one of its own.
const keepUnused = 30 * 24 * time.Hour

// forgetUnused removes the binaries in dir that were last used before a moment.
func forgetUnused(dir string, before time.Time) error {
	binaries, err := filepath.Glob(filepath.Join(dir, "kube-*", "kube"))
	if err != nil {
		return err
	}
	for _, b := range binaries {
		info, err := os.Stat(b)
		if err != nil || !info.ModTime().Before(before) {
			continue // gone, or in use
		}
		if err := os.RemoveAll(filepath.Dir(b)); err != nil {
			return err
		}
	}
	return nil
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// whileTelling does something slow and says every ten seconds that it still does.
func whileTelling(progress io.Writer, what string, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	start := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			fmt.Fprintf(progress, "… %s, %s\n", what, time.Since(start).Round(time.Second))
		}
	}
}

// withLock does something that no other process does meanwhile. The kernel
// releases the lock of a process that dies.
func withLock(ctx context.Context, dir string, progress io.Writer, do func() error) error {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // and with it the lock
	try := func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if err = try(); errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintln(progress, "Another process is building the control plane; waiting for it.")
		whileTelling(progress, "waiting for the other process", func() { err = untilFree(ctx, try) })
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return do()
}

func untilFree(ctx context.Context, try func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := try(); !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Assets returns a folder for KUBEBUILDER_ASSETS: the binary under each of the
// names that it answers to, so that anybody's envtest runs on it.
func Assets(ctx context.Context, progress io.Writer) (string, error) {
	binary, err := Binary(ctx, progress)
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(binary))
	dir := filepath.Join(user, "nodewarden", "assets-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range roles {
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}
