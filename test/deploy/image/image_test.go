package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

const (
	root    = "../../.."
	version = "v9.8.7"
	commit  = "0123456789abcdef"
	program = "nodewarden-webhook"

	// most is what an image may hold, compressed.
	most = 40 << 20
)

// build builds the webhook's image for this machine.
func build(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles a program, which -short leaves out")
	}
	out := t.TempDir()
	cmd := exec.Command("go", "run", "./deploy/image", "-out", out, "-version", version, "-commit", commit,
		"-created", "2026-01-02T03:04:05Z", "-platforms", "linux/"+runtime.GOARCH, program)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// image is what an archive holds, unpacked and verified.
type image struct {
	config struct {
		Config struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		} `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	layer []byte // uncompressed
	size  int    // compressed
}

type descriptor struct{ Digest string }

// open reads an archive by its indexes, as a registry's client would, and
// verifies every digest on the way.
func open(t *testing.T, path string) image {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	blobs := files(t, data)
	blob := func(d descriptor, into any) []byte {
		text := blobs["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if text == nil || digest(text) != d.Digest {
			t.Fatalf("blob %s is missing or has other contents", d.Digest)
		}
		if into != nil {
			must(t, json.Unmarshal(text, into))
		}
		return text
	}
	var index, platforms struct{ Manifests []descriptor }
	must(t, json.Unmarshal(blobs["index.json"], &index))
	blob(index.Manifests[0], &platforms)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob(platforms.Manifests[0], &manifest)
	if len(manifest.Layers) != 1 {
		t.Fatalf("%d layers", len(manifest.Layers))
	}
	var i image
	blob(manifest.Config, &i.config)
	packed := blob(manifest.Layers[0], nil)
	i.size = len(packed)
	r, err := gzip.NewReader(bytes.NewReader(packed))
	must(t, err)
	i.layer, err = io.ReadAll(r)
	must(t, err)
	if got := i.config.RootFS.DiffIDs; len(got) != 1 || got[0] != digest(i.layer) {
		t.Fatalf("the configuration promises %v, the layer is %s", got, digest(i.layer))
	}
	return i
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are the regular files of a tar archive.
func files(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		all[h.Name], err = io.ReadAll(r)
		must(t, err)
	}
}

// unpack writes the image's file system into a folder.
func (i image) unpack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	for name, text := range files(t, i.layer) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mode := os.FileMode(0o644)
		if "/"+name == i.config.Config.Entrypoint[0] {
			mode = 0o755
		}
		must(t, os.WriteFile(path, text, mode))
	}
	return dir
}

func TestTheImageHoldsOneStaticProgramAndRunsItAsNobody(t *testing.T) {
	i := open(t, filepath.Join(build(t), program+".tar"))
	if i.config.Config.User != "65532:65532" || i.config.Config.Labels["org.opencontainers.image.version"] != version {
		t.Errorf("configuration %+v", i.config)
	}
	if i.size > most {
		t.Errorf("%d MiB compressed, and %d is the most", i.size>>20, most>>20)
	}
	for name := range files(t, i.layer) {
		if name != program && name != "etc/passwd" && name != "sbom.spdx.json" {
			t.Errorf("it holds %s as well", name)
		}
	}
	f, err := elf.Open(filepath.Join(i.unpack(t), program))
	must(t, err)
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
		t.Errorf("it is not static: %v %v", libraries, err)
	}

	dir := i.unpack(t)
	out, err := i.command(t, dir, "--version").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != program+" "+version {
		t.Errorf("--version: %q, %v", out, err)
	}
	i.serve(t, dir)
}

// command runs the image's program with its own file system as the only one,
// as the user of the image.
func (i image) command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changing the root directory takes root")
	}
	cmd := exec.Command(i.config.Config.Entrypoint[0], args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// serve runs the webhook on a certificate in a volume until it is ready, and
// wants it to end in order.
func (i image) serve(t *testing.T, dir string) {
	t.Helper()
	volume := filepath.Join(dir, "etc/nodewarden/tls")
	must(t, os.MkdirAll(volume, 0o755))
	certificate, key := certs.New(t).Issue(t, time.Now().Add(time.Hour)).Write(t, volume)
	for _, file := range []string{certificate, key} {
		must(t, os.Chown(file, 65532, 65532))
	}
	aside := free(t)
	cmd := i.command(t, dir, "--bind-address="+free(t), "--metrics-bind-address="+aside, "--drain=0s",
		"--tls-cert-file=/etc/nodewarden/tls/tls.crt", "--tls-private-key-file=/etc/nodewarden/tls/tls.key")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := ready("http://" + aside + "/readyz")
		if err == nil {
			break
		}
		if time.Now().After(giveUp) {
			_ = cmd.Process.Kill()
			t.Fatalf("never ready: %v, %v\n%s", err, <-ended, &log)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, &log)
	}
}

func ready(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestTheSameSourceGivesTheSameBytes(t *testing.T) {
	first, second := build(t), build(t)
	for _, name := range []string{program + ".tar", program + "-linux-" + runtime.GOARCH + ".spdx.json"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		must(t, err)
		b, err := os.ReadFile(filepath.Join(second, name))
		must(t, err)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: built twice, and not the same", name)
		}
	}
}

func TestTheBillOfMaterialsNamesEveryModule(t *testing.T) {
	out := build(t)
	text, err := os.ReadFile(filepath.Join(out, program+"-linux-"+runtime.GOARCH+".spdx.json"))
	must(t, err)
	var bill struct {
		SPDXVersion string `json:"spdxVersion"`
		Packages    []struct{ Name, VersionInfo string }
	}
	must(t, json.Unmarshal(text, &bill))
	has := map[string]string{}
	for _, p := range bill.Packages {
		has[p.Name] = p.VersionInfo
	}
	if bill.SPDXVersion != "SPDX-2.3" || has[program] != version || has["go"] != runtime.Version() {
		t.Errorf("%s: program %q, go %q", bill.SPDXVersion, has[program], has["go"])
	}
	for _, needed := range []string{"k8s.io/apimachinery", "k8s.io/client-go", "github.com/prometheus/client_golang"} {
		if has[needed] == "" {
			t.Errorf("%s is missing", needed)
		}
	}
}
