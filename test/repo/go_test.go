package repo

import (
	"bytes"
	"go/ast"
	"go/format"
	"path"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageSaysOnceWhatItIsFor(t *testing.T) {
	type key struct{ dir, name string }
	docs, sources := map[key][]goFile{}, map[key]int{}
	for _, f := range goFiles(t) {
		k := key{f.dir(), f.ast.Name.Name}
		if !f.isTest() {
			sources[k]++
		}
		if f.ast.Doc != nil && !f.isTest() {
			docs[k] = append(docs[k], f)
		}
	}
	for k := range sources {
		if len(docs[k]) != 1 {
			t.Errorf("%s has %d package comments: give it one, with its job and its limits", k.dir, len(docs[k]))
			continue
		}
		checkDoc(t, docs[k][0])
	}
}

func checkDoc(t *testing.T, f goFile) {
	t.Helper()
	want := "Package " + f.ast.Name.Name + " "
	if f.ast.Name.Name == "main" {
		want = "Command "
	}
	text := f.ast.Doc.Text()
	if !strings.HasPrefix(text, want) || !strings.Contains(text, ".") {
		t.Errorf("%s: its package comment is to be a sentence that begins with %q", f.name, want)
	}
}

func TestNoPackageIsNamedForNothingInParticular(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "manager", "managers", "base", "misc", "shared", "lib", "core", "types"}
	seen := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, part := range append(strings.Split(f.dir(), "/"), strings.TrimSuffix(f.ast.Name.Name, "_test")) {
			if slices.Contains(vague, part) && !seen[f.dir()] {
				seen[f.dir()] = true
				t.Errorf("%s: %q says nothing: name the package for what it does", f.dir(), part)
			}
		}
	}
}

func TestEveryGoFileIsFormatted(t *testing.T) {
	for _, f := range goFiles(t) {
		formatted, err := format.Source(f.data)
		if err != nil || !bytes.Equal(formatted, f.data) {
			t.Errorf("%s is not formatted (%v): make fmt", f.name, err)
		}
	}
}

// page is how many lines a main may have, its comments included.
const page = 70

func TestEveryMainIsAPageAtMost(t *testing.T) {
	mains := 0
	for _, f := range goFiles(t) {
		if !strings.HasPrefix(f.name, "cmd/") || path.Base(f.name) != "main.go" {
			continue
		}
		mains++
		if lines := bytes.Count(f.data, []byte("\n")); lines > page {
			t.Errorf("%s has %d lines: a main holds the process, the program belongs beside it", f.name, lines)
		}
	}
	if mains == 0 {
		t.Error("found no main.go below cmd")
	}
}

func TestOnlyMainEndsTheProcessAndNothingPanics(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() || strings.HasPrefix(f.name, "test/") || path.Base(f.name) == "main.go" || strings.HasPrefix(f.name, "cmd/internal/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch fun := call.Fun.(type) {
			case *ast.SelectorExpr:
				if pkg, ok := fun.X.(*ast.Ident); ok && pkg.Name == "os" && fun.Sel.Name == "Exit" {
					t.Errorf("%s calls os.Exit: return an error, so that callers can clean up", f.name)
				}
			case *ast.Ident:
				if fun.Name == "panic" {
					t.Errorf("%s calls panic: return an error", f.name)
				}
			}
			return true
		})
	}
}
