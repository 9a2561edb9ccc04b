// Package kubeletcfg_test holds kubeletcfg against the programs it speaks of:
// the configuration loader of the kubelet, kubeadm, Cluster API.
package kubeletcfg_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

// entry is one command line of a kubelet, read from corpus/NAME.txtar:
// main.yaml, files below conf.d/, and flags with one feature gate a line.
type entry struct {
	name   string
	main   *kubeletcfg.File
	dir    []kubeletcfg.File
	hasDir bool
	flags  map[string]bool
}

// verdict is what a kubelet did with an entry, as recorded from the real one.
type verdict struct {
	Starts bool `json:"starts"`
	// Warned: it logged that it decodes leniently.
	Warned bool `json:"warned,omitempty"`
	// Skipped are files in the drop-in directory that it did not read.
	Skipped []string `json:"skipped,omitempty"`
	// Config holds what differs from the defaults of a --config file.
	Config map[string]any `json:"config,omitempty"`
}

func corpus(t *testing.T) []entry {
	t.Helper()
	names, err := filepath.Glob("corpus/*.txtar")
	if err != nil || len(names) < 60 {
		t.Fatalf("the corpus has %d entries (%v), and we promise at least 60", len(names), err)
	}
	var entries []entry
	for _, name := range names {
		entries = append(entries, readEntry(t, name))
	}
	return entries
}

func readEntry(t *testing.T, name string) entry {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	e := entry{name: strings.TrimSuffix(filepath.Base(name), ".txtar"), flags: map[string]bool{}}
	for _, f := range archive.Files {
		below, inDir := strings.CutPrefix(f.Name, "conf.d/")
		switch {
		case inDir:
			e.hasDir = true
			e.dir = append(e.dir, kubeletcfg.File{Name: below, Data: f.Data})
		case f.Name == "flags":
			for line := range strings.Lines(string(f.Data)) {
				gate, on, _ := strings.Cut(strings.TrimSpace(line), "=")
				e.flags[gate] = on == "true"
			}
		default:
			e.main = &kubeletcfg.File{Name: f.Name, Data: f.Data}
		}
	}
	return e
}

func (e entry) input(version string) kubeletcfg.Input {
	v, err := kubeletcfg.ParseVersion(version)
	if err != nil {
		panic(err)
	}
	in := kubeletcfg.Input{Main: e.main, MainDir: "/etc/kubelet", Dir: e.dir, Version: v, FeatureGates: e.flags}
	if e.hasDir {
		in.DirName = "conf.d"
	}
	return in
}

const recorded = "corpus/verdicts.json"

func TestLintSaysWhatTheKubeletDoes(t *testing.T) {
	verdicts := map[string]verdict{}
	data, err := os.ReadFile(recorded)
	if err == nil {
		err = json.Unmarshal(data, &verdicts)
	}
	if err != nil {
		t.Fatal(err)
	}
	entries := corpus(t)
	defaults := leavesOf(t, kubeletcfg.Lint(readEntry(t, "corpus/minimal.txtar").input("1.37.2")).Config)
	for _, e := range entries {
		t.Run(e.name, func(t *testing.T) {
			report := kubeletcfg.Lint(e.input("1.37.2"))
			want, ok := verdicts[e.name]
			if !ok {
				t.Fatalf("no recorded verdict: go test ./test/kubeletcfg -run TestRecordedVerdicts -update")
			}
			got := asVerdict(t, report, defaults, want)
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("lint says\n%s\nthe kubelet says\n%s\nreport:\n%s", a, b, report)
			}
		})
	}
}

// asVerdict puts a report into the words of the real loader.
func asVerdict(t *testing.T, r kubeletcfg.Report, defaults map[string]any, want verdict) verdict {
	v := verdict{Starts: r.Starts}
	for _, f := range r.Findings {
		v.Warned = v.Warned || f.Outcome == kubeletcfg.IgnoredWithWarning
		if strings.Contains(f.Message, "is not read") {
			v.Skipped = append(v.Skipped, strings.TrimPrefix(f.File, "conf.d/"))
		}
	}
	slices.Sort(v.Skipped)
	if !v.Starts {
		// The real loader stops at the first fault and tells no more.
		v.Warned, v.Skipped = want.Warned, want.Skipped
		return v
	}
	v.Config = unlike(leavesOf(t, r.Config), defaults)
	return v
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// kubeletCase and kubeletResult are the language of loader/kubelet.go.
type kubeletCase struct {
	Main  string   `json:"main"`
	Dir   string   `json:"dir"`
	Flags []string `json:"flags"`
}

type kubeletResult struct {
	Starts  bool           `json:"starts"`
	Error   string         `json:"error"`
	Warned  bool           `json:"warned"`
	Skipped []string       `json:"skipped"`
	Config  map[string]any `json:"config"`
}

func TestRecordedVerdictsAreThoseOfTheRealLoader(t *testing.T) {
	entries := corpus(t)
	root := t.TempDir()
	var cases []kubeletCase
	for _, e := range entries {
		cases = append(cases, e.write(t, filepath.Join(root, e.name)))
	}
	results := ask[kubeletResult](t, loaderProgram, cases, "kubelet")
	var defaults map[string]any
	for i, e := range entries {
		if e.name == "minimal" {
			defaults = leavesOf(t, results[i].Config)
		}
	}
	verdicts := map[string]verdict{}
	for i, e := range entries {
		verdicts[e.name] = asRecorded(t, results[i], filepath.Join(root, e.name), defaults)
	}
	golden(t, recorded, []byte(asJSON(t, verdicts)+"\n"))
}

func asRecorded(t *testing.T, r kubeletResult, dir string, defaults map[string]any) verdict {
	v := verdict{Starts: r.Starts, Warned: r.Warned}
	for _, name := range r.Skipped {
		rel, err := filepath.Rel(filepath.Join(dir, "conf.d"), name)
		if err != nil {
			t.Fatal(err)
		}
		v.Skipped = append(v.Skipped, filepath.ToSlash(rel))
	}
	slices.Sort(v.Skipped)
	if !r.Starts {
		return v
	}
	leaves := leavesOf(t, r.Config)
	for path, value := range leaves {
		if text, ok := value.(string); ok {
			leaves[path] = strings.ReplaceAll(text, dir, "/etc/kubelet")
		}
	}
	v.Config = unlike(leaves, defaults)
	return v
}

// write puts the entry on disk and returns the command line for it.
func (e entry) write(t *testing.T, dir string) kubeletCase {
	t.Helper()
	var c kubeletCase
	put := func(name string, data []byte) string {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if e.main != nil {
		c.Main = put(e.main.Name, e.main.Data)
	}
	for _, f := range e.dir {
		put("conf.d/"+f.Name, f.Data)
		c.Dir = filepath.Join(dir, "conf.d")
	}
	for gate, on := range e.flags {
		c.Flags = append(c.Flags, "--feature-gates="+gate+"="+strconv.FormatBool(on))
	}
	return c
}

func TestTheCorpusHasAFileWithEveryField(t *testing.T) {
	e := readEntry(t, "corpus/every-documented-field.txtar")
	report := kubeletcfg.Lint(e.input("1.37.2"))
	if !report.Clean() {
		t.Errorf("a valid file has findings:\n%s", report)
	}
	set := map[string]bool{}
	for _, line := range strings.Split(string(e.main.Data), "\n") {
		if field, _, ok := strings.Cut(line, ":"); ok && field == strings.TrimSpace(field) {
			set[field] = true
		}
	}
	for f := range reflect.TypeFor[v1beta1.KubeletConfiguration]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && !set[name] {
			t.Errorf("%s is not in the file", name)
		}
	}
}

func TestShuffledFilesGetTheSameVerdictFromBoth(t *testing.T) {
	const rounds, seed = 600, 6371
	entries := corpus(t)
	rng := rand.New(rand.NewPCG(seed, seed))
	root := t.TempDir()
	var shuffled []entry
	var cases []kubeletCase
	for i := range rounds {
		e := shuffle(rng, entries)
		e.name = fmt.Sprint(i)
		shuffled = append(shuffled, e)
		cases = append(cases, e.write(t, filepath.Join(root, e.name)))
	}
	starts := 0
	for i, r := range ask[kubeletResult](t, loaderProgram, cases, "kubelet") {
		if r.Starts {
			starts++
		}
		e := shuffled[i]
		report := kubeletcfg.Lint(e.input("1.37.2"))
		want := asRecorded(t, r, filepath.Join(root, e.name), nil)
		got := asVerdict(t, report, nil, want)
		if a, b := asJSON(t, got), asJSON(t, want); a != b {
			t.Errorf("round %d\n%s\nlint says\n%s\nthe kubelet says\n%s\n(%s)", i, e, a, b, r.Error)
		}
	}
	if starts < rounds/10 {
		t.Errorf("only %d of %d start: the shuffle proves too little", starts, rounds)
	}
}

// shuffle makes a new command line out of the files of the corpus: one's main
// file, up to three other files as drop-ins, another's flags.
func shuffle(rng *rand.Rand, entries []entry) entry {
	pick := func() entry { return entries[rng.IntN(len(entries))] }
	e := entry{main: pick().main, flags: map[string]bool{}}
	if rng.IntN(4) == 0 {
		e.flags = pick().flags
	}
	for i := range rng.IntN(4) {
		e.hasDir = true
		from := pick()
		files := append(slices.Clone(from.dir), kubeletcfg.File{Data: from.main0()})
		f := files[rng.IntN(len(files))]
		e.dir = append(e.dir, kubeletcfg.File{Name: fmt.Sprintf("%d0.conf", i), Data: f.Data})
	}
	return e
}

// main0 is the main file, or nothing.
func (e entry) main0() []byte {
	if e.main == nil {
		return nil
	}
	return e.main.Data
}

// String shows all files of an entry.
func (e entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flags %v\n-- main --\n%s", e.flags, e.main0())
	for _, f := range e.dir {
		fmt.Fprintf(&b, "-- %s --\n%s", f.Name, f.Data)
	}
	return b.String()
}
