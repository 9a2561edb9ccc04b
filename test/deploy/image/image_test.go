package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

const (
	root    = "../../.."
	version = "v9.8.7"
	commit  = "0123456789abcdef"
	here    = "linux/" + runtime.GOARCH

	// most is what an image may hold, compressed.
	most = 40 << 20
)

// programs are what there is an image of.
var programs = []string{"nodewarden-webhook", "nodewarden-controller", "nodewarden"}

// build builds the images of some programs, or of all, into a folder.
func build(platforms string, programs ...string) (string, error) {
	out, err := os.MkdirTemp(scratch, "images-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", append([]string{"run", "./deploy/image", "-out", out, "-version", version, "-commit", commit,
		"-created", "2026-01-02T03:04:05Z", "-platforms", platforms}, programs...)...)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the images: %w\n%s", err, text)
	}
	return out, nil
}

// scratch is where the images lie that tests share.
var scratch string

func TestMain(m *testing.M) { os.Exit(inScratch(m)) }

func inScratch(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "nodewarden-images-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	return m.Run()
}

var buildAll = sync.OnceValues(func() (string, error) { return build(here) })

// images is the folder with the images of all programs for this machine.
func images(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles programs, which -short leaves out")
	}
	out, err := buildAll()
	must(t, err)
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

func TestAnImageHoldsOneStaticProgramThatRunsAsNobody(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			i := open(t, filepath.Join(images(t), program+".tar"))
			if i.config.Config.User != "65532:65532" || i.config.Config.Labels["org.opencontainers.image.version"] != version {
				t.Errorf("configuration %+v", i.config)
			}
			if i.size > most {
				t.Errorf("%d MiB compressed, and %d is the most", i.size>>20, most>>20)
			}
			held := files(t, i.layer)
			for name := range held {
				if name != program && name != "etc/passwd" && name != "sbom.spdx.json" {
					t.Errorf("it holds %s as well", name)
				}
			}
			beside, err := os.ReadFile(filepath.Join(images(t), program+"-linux-"+runtime.GOARCH+".spdx.json"))
			must(t, err)
			if !bytes.Equal(held["sbom.spdx.json"], beside) {
				t.Error("the bill of materials in the image is not the one beside it")
			}
			dir := i.unpack(t)
			f, err := elf.Open(filepath.Join(dir, program))
			must(t, err)
			if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
				t.Errorf("it is not static: %v %v", libraries, err)
			}
			ask := "--version"
			if program == "nodewarden" {
				ask = "version" // a command, beside its others
			}
			out, err := i.command(t, dir, ask).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), program+" "+version) {
				t.Errorf("%s: %q, %v", ask, out, err)
			}
		})
	}
}

// What a kubelet would start is started, on a real API server, with no file but
// those of the image and of its volumes, and ends in order when it is told to.
func TestTheProgramsOfTheImagesDoTheirWork(t *testing.T) {
	out := images(t)
	cp := controlplane.ForTest(t, controlplane.Options{})
	config, err := cp.Kubeconfig(cp.Admin())
	must(t, err)
	kubeconfig, err := os.ReadFile(config)
	must(t, err)
	node := filepath.Join(t.TempDir(), "node.yaml")
	must(t, os.WriteFile(node, []byte("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"), 0o600))
	_, err = cp.Kubectl(t.Context(), cp.Admin(), "create", "-f", node)
	must(t, err)
	for program, play := range map[string]func(*testing.T, image, string){
		"nodewarden-webhook": func(t *testing.T, i image, dir string) {
			volume := filepath.Join(dir, "etc/nodewarden")
			certificate, key := certs.New(t).Issue(t, time.Now().Add(time.Hour)).Write(t, volume)
			give(t, certificate, key)
			i.serve(t, dir, "--bind-address="+free(t), "--drain=0s", "--kubeconfig=/etc/nodewarden/kubeconfig",
				"--tls-cert-file=/etc/nodewarden/tls.crt", "--tls-private-key-file=/etc/nodewarden/tls.key")
		},
		"nodewarden-controller": func(t *testing.T, i image, dir string) {
			i.serve(t, dir, "--mode=replace", "--kubeconfig=/etc/nodewarden/kubeconfig", "--leader-elect-resource-namespace=default")
		},
		"nodewarden": func(t *testing.T, i image, dir string) {
			said, err := i.command(t, dir, "verify", "--expect=silence", "--wait=0s", "--kubeconfig=/etc/nodewarden/kubeconfig").CombinedOutput()
			if err != nil || !strings.Contains(string(said), "silence, as it should be") {
				t.Errorf("%v\n%s", err, said)
			}
		},
	} {
		t.Run(program, func(t *testing.T) {
			i := open(t, filepath.Join(out, program+".tar"))
			dir := i.unpack(t)
			volume := filepath.Join(dir, "etc/nodewarden")
			must(t, os.MkdirAll(volume, 0o755))
			file := filepath.Join(volume, "kubeconfig")
			must(t, os.WriteFile(file, kubeconfig, 0o600))
			give(t, file)
			play(t, i, dir)
		})
	}
}

// give gives files to the user of the images.
func give(t *testing.T, files ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving files away takes root")
	}
	for _, file := range files {
		must(t, os.Chown(file, 65532, 65532))
	}
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

// serve runs a server until it is ready, and wants it to end in order.
func (i image) serve(t *testing.T, dir string, args ...string) {
	t.Helper()
	aside := free(t)
	cmd := i.command(t, dir, append(args, "--metrics-bind-address="+aside)...)
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
	first := images(t)
	second, err := build(here)
	must(t, err)
	names, err := filepath.Glob(filepath.Join(first, "*"))
	must(t, err)
	if len(names) != 2*len(programs) {
		t.Errorf("an image and a bill of materials each: %q", names)
	}
	for _, name := range names {
		a, err := os.ReadFile(name)
		must(t, err)
		b, err := os.ReadFile(filepath.Join(second, filepath.Base(name)))
		must(t, err)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: built twice, and not the same", filepath.Base(name))
		}
	}
}

func TestARegistryTakesTheImages(t *testing.T) { roundTrip(t, images(t), here) }

func TestSoakARegistryTakesTheImagesOfBothArchitectures(t *testing.T) {
	if os.Getenv("NODEWARDEN_SOAK") == "" {
		t.Skip("compiles everything for another architecture; set NODEWARDEN_SOAK=1")
	}
	both, err := build("linux/amd64,linux/arm64")
	must(t, err)
	roundTrip(t, both, "linux/amd64", "linux/arm64")
}

// roundTrip has another library than ours read the archives, and a registry take
// them and give them out again, for each platform.
func roundTrip(t *testing.T, folder string, platforms ...string) {
	t.Helper()
	want := map[string]bool{}
	var archives []string
	for _, program := range programs {
		archives = append(archives, filepath.Join(folder, program+".tar"))
		for _, platform := range platforms {
			want[program+" "+platform] = true
		}
	}
	tool := filepath.Join(t.TempDir(), "registry")
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".")
	compile.Dir, compile.Env = "registry", append(os.Environ(), "GOWORK=off")
	if text, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), tool, archives...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &complaint)
	}
	for line := range bytes.Lines(out) {
		var image struct {
			Platform, User string
			Entrypoint     []string
		}
		must(t, json.Unmarshal(line, &image))
		if len(image.Entrypoint) != 1 || image.User != "65532:65532" {
			t.Fatalf("%s", line)
		}
		got := strings.TrimPrefix(image.Entrypoint[0], "/") + " " + image.Platform
		if !want[got] {
			t.Errorf("the registry gives out %s", got)
		}
		delete(want, got)
	}
	if len(want) > 0 {
		t.Errorf("the registry does not give out %v", want)
	}
}

func TestTheBillOfMaterialsNamesEveryModule(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(images(t), program+"-linux-"+runtime.GOARCH+".spdx.json"))
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
			held, err := buildinfo.Read(bytes.NewReader(files(t, open(t, filepath.Join(images(t), program+".tar")).layer)[program]))
			must(t, err)
			if len(held.Deps) < 20 {
				t.Errorf("it is made of %d modules", len(held.Deps))
			}
			for _, m := range held.Deps {
				if has[m.Path] != m.Version {
					t.Errorf("%s %s is missing", m.Path, m.Version)
				}
			}
		})
	}
}
