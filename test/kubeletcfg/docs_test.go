package kubeletcfg_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nodewarden/nodewarden/cmd/nodewarden/kubelet"
)

const page = "../../docs/kubeletcfg.md"

// console is a block of commands and what they print.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

func TestTheDocumentationShowsWhatTheCommandsPrint(t *testing.T) {
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(exampleFiles(t))
	got := console.ReplaceAllFunc(want, func(block []byte) []byte {
		var out strings.Builder
		for line := range strings.Lines(string(block)) {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
				fmt.Fprintf(&out, "$ %s\n%s", command, perform(t, command))
			}
		}
		return []byte("```console\n" + out.String() + "```")
	})
	t.Chdir(home)
	golden(t, page, got)
}

// exampleFiles unpacks docs.txtar.
func exampleFiles(t *testing.T) string {
	t.Helper()
	archive, err := txtar.ParseFile("docs.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// perform runs a command of the page and returns what a reader would see.
func perform(t *testing.T, command string) string {
	t.Helper()
	if file, ok := strings.CutPrefix(command, "cat "); ok {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	args, ok := strings.CutPrefix(command, "nodewarden kubelet ")
	if !ok {
		t.Fatalf("the page shows a command that this test cannot run: %s", command)
	}
	out, code := nodewarden(strings.Fields(args)...)
	if code != 0 {
		out += fmt.Sprintf("(exit code %d)\n", code)
	}
	return out
}

// nodewarden is `nodewarden kubelet` with these arguments: output and exit code.
func nodewarden(args ...string) (string, int) {
	var out bytes.Buffer
	cmd := kubelet.Command(kubelet.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	cmd.SetArgs(args)
	switch err := cmd.Execute(); {
	case err == nil:
		return out.String(), 0
	case errors.Is(err, kubelet.ErrFindings):
		return out.String(), 1
	default:
		fmt.Fprintln(&out, err)
		return out.String(), 2
	}
}
