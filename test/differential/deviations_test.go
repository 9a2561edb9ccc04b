package differential_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A deviation without a test is a bug that was written down.
func TestEveryListedDeviationHasItsTest(t *testing.T) {
	doc, err := os.ReadFile("../../docs/deviations.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := existingTests(t)
	rows := 0
	for line := range strings.Lines(string(doc)) {
		if !strings.HasPrefix(line, "| ") || strings.Contains(line, "| why | test |") {
			continue
		}
		rows++
		names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no test is named in: %s", line)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("there is no %s; it is named in: %s", name[1], line)
			}
		}
	}
	if rows == 0 {
		t.Error("no deviation found; has the form of the list changed?")
	}
}

func existingTests(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	for _, dir := range []string{"../../controller", "../../cmd/nodewarden-controller", "../integration/lifecycle"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			for _, m := range declaration.FindAllSubmatch(src, -1) {
				found[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
