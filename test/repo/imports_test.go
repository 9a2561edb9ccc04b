package repo

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// may is what a package may import besides the standard library and itself. An
// entry that ends in /... stands for everything below it, too.
type may struct {
	ours   []string
	others []string
	// pure packages decide with values alone: see unpure.
	pure bool
}

var (
	apis   = []string{"k8s.io/api/...", "k8s.io/apimachinery/..."}
	client = append(slices.Clone(apis), "k8s.io/client-go/...", "k8s.io/utils/clock", "k8s.io/klog/v2", "github.com/go-logr/logr")
	config = append(slices.Clone(apis), "sigs.k8s.io/yaml", "sigs.k8s.io/json", "go.yaml.in/yaml/v3")
	server = append(slices.Clone(client), "sigs.k8s.io/controller-runtime/...", "github.com/prometheus/client_golang/...", "golang.org/x/sync/...")
)

// importMap is the one of docs/architecture.md. Packages are matched by their
// longest entry.
var importMap = map[string]may{
	"contract":             {others: apis, pure: true},
	"controller/lifecycle": {others: apis, pure: true},
	"controller/zone":      {others: apis, pure: true},

	"kubeletcfg/...":           {others: append(slices.Clone(config), "k8s.io/kubelet/...")},
	"kubeletcfg/preflight/...": {ours: []string{"kubeletcfg", "contract"}, others: append(slices.Clone(client), config...)},
	"detector/...":             {ours: []string{"contract"}, others: client},
	"controller/...":           {ours: []string{"controller/lifecycle", "controller/zone"}, others: server},
	"webhook/...": {
		ours:   []string{"contract", "webhook/..."},
		others: slices.Concat(server, config, []string{"k8s.io/apiserver/...", "github.com/go-json-experiment/json/...", "github.com/fsnotify/fsnotify", "github.com/google/cel-go/..."}),
	},

	"cmd/internal/boot":          {others: slices.Concat(server, commands)},
	"cmd/nodewarden-webhook/...": {ours: []string{"cmd/internal/boot", "contract", "webhook/..."}, others: slices.Concat(server, config, commands)},
	"cmd/nodewarden-controller/...": {
		ours: []string{"cmd/internal/boot", "controller", "controller/lifecycle", "controller/zone"}, others: slices.Concat(server, config, commands),
	},
	"cmd/nodewarden-detector/...": {ours: []string{"cmd/internal/boot", "contract", "detector/..."}, others: slices.Concat(server, config, commands)},
	"cmd/nodewarden/...": {
		ours: []string{
			"cmd/internal/boot", "cmd/nodewarden/...", "contract", "webhook/...", "kubeletcfg/...", "detector/...",
			"test/conformance/...", "test/controlplane/...",
		},
		others: slices.Concat(server, config, commands),
	},

	"deploy/image":    {}, // the standard library builds an image
	"deploy/generate": {ours: []string{"contract", "webhook/policy"}, others: config},
}

var commands = []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/component-base/..."}

// unpure holds what a package that decides with values alone has no use for.
var unpure = map[string][]string{
	"os": nil, "log": nil, "log/slog": nil, "net": nil, "net/http": nil, "context": nil, "math/rand": nil, "math/rand/v2": nil,
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
}

func TestOurImportsFollowTheMap(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() || strings.HasPrefix(f.name, "test/") || strings.HasPrefix(f.name, "tools/") {
			continue
		}
		rule, ok := ruleFor(f.dir())
		if !ok {
			t.Errorf("%s: its package is not on the map: decide what it may import, here and in docs/architecture.md", f.name)
			continue
		}
		for _, imported := range f.imports() {
			if !rule.allows(f.dir(), imported) {
				t.Errorf("%s imports %s: change the import, or the map here and in docs/architecture.md with it", f.name, imported)
			}
		}
	}
}

func ruleFor(dir string) (may, bool) {
	best, found := "", false
	for entry := range importMap {
		if matches(entry, dir) && len(entry) > len(best) {
			best, found = entry, true
		}
	}
	return importMap[best], found
}

func matches(entry, name string) bool {
	prefix, below := strings.CutSuffix(entry, "/...")
	return name == prefix || below && strings.HasPrefix(name, prefix+"/")
}

func (m may) allows(dir, imported string) bool {
	if !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
		return true // the standard library
	}
	list := m.others
	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		imported, list = ours, m.ours
	}
	return imported == dir || slices.ContainsFunc(list, func(entry string) bool { return matches(entry, imported) })
}

func TestNothingOutsideTestsImportsTests(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() || strings.HasPrefix(f.name, "test/") || strings.HasPrefix(f.name, "cmd/nodewarden/") {
			continue
		}
		for _, imported := range f.imports() {
			if strings.HasPrefix(imported, module+"/test/") {
				t.Errorf("%s imports %s, which is for tests: move what it needs", f.name, imported)
			}
		}
	}
}

func TestPurePackagesNeitherReadAClockNorCallOut(t *testing.T) {
	for _, f := range goFiles(t) {
		if rule, ok := ruleFor(f.dir()); f.isTest() || !ok || !rule.pure {
			continue
		}
		for _, imported := range f.imports() {
			if names, listed := unpure[imported]; listed && names == nil {
				t.Errorf("%s imports %s, but its package decides with values alone: pass what it needs as an argument", f.name, imported)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := s.X.(*ast.Ident); ok && slices.Contains(unpure[pkg.Name], s.Sel.Name) {
					t.Errorf("%s uses %s.%s, but its package decides with values alone: pass the time as an argument", f.name, pkg.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestTestsTalkToRealPartsAndToNoFakes(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imported := range f.imports() {
			if strings.HasPrefix(imported, "k8s.io/client-go/") && strings.HasSuffix(imported, "/fake") ||
				imported == "sigs.k8s.io/controller-runtime/pkg/client/fake" {
				t.Errorf("%s imports %s: use test/controlplane, which starts a real API server", f.name, imported)
			}
		}
	}
}

func TestTheRootModuleReplacesNothing(t *testing.T) {
	found := false
	eachFile(t, func(name string, data []byte) {
		if name != "go.mod" {
			return
		}
		found = true
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "replace") {
				t.Errorf("go.mod has %q: then nobody can `go install` us; what needs it belongs in a nested module", strings.TrimSpace(line))
			}
		}
	})
	if !found {
		t.Error("there is no go.mod")
	}
}
