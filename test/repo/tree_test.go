package repo

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nodewarden/nodewarden"

// root is the repository, seen from the folder that these tests run in.
const root = "../.."

// eachFile visits every text file that belongs to the repository, with its
// path from the root. A folder with a go.mod of its own belongs as well.
func eachFile(t *testing.T, visit func(name string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "node_modules"}, e.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if e.Name() == ".git" || !e.Type().IsRegular() { // .git is a file in a worktree
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			return nil // a program or an archive that lies around
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(name), data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFile is one Go file of the main module or a nested one.
type goFile struct {
	name string // from the root
	data []byte
	ast  *ast.File
}

func (f goFile) dir() string  { return path.Dir(f.name) }
func (f goFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// imports are what f imports.
func (f goFile) imports() []string {
	var list []string
	for _, i := range f.ast.Imports {
		list = append(list, strings.Trim(i.Path.Value, `"`))
	}
	return list
}

// goFiles are all Go files outside testdata.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	eachFile(t, func(name string, data []byte) {
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		files = append(files, goFile{name: name, data: data, ast: f})
	})
	if len(files) < 50 {
		t.Fatalf("found only %d Go files: these tests look in the wrong place", len(files))
	}
	return files
}
