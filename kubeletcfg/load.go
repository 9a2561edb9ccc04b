package kubeletcfg

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// File is one file as somebody read it.
type File struct {
	// Name is how messages call the file.
	Name string
	Data []byte
	// Err is why the file could not be read; a kubelet would fail on it too.
	Err error
}

// Input is the command line of one kubelet, with its files in hand.
type Input struct {
	// Main is the --config file; nil where there is none.
	Main *File
	// MainDir is the absolute directory of Main. Relative paths in Main are
	// relative to it.
	MainDir string
	// Dir holds every file below --config-dir, in any order, named relative
	// to that directory with slashes. Sub-directories are part of the name.
	Dir []File
	// DirName is how messages call --config-dir; empty where there is none.
	DirName string
	Version Version
	// FeatureGates is what --feature-gates says.
	FeatureGates map[string]bool
}

// loading is one run of the loader.
type loading struct {
	in       Input
	codecs   codecs
	flags    gates
	origins  origins
	findings []Finding
	order    []string
	// zeros are the settings that whoever set them last set to zero.
	zeros zeros
	// merged is the configuration as JSON, before it is decoded for good.
	merged map[string]any
	config *Config
}

func load(in Input) *loading {
	l := &loading{in: in, codecs: codecsFor(in.Version), flags: in.FeatureGates, origins: origins{}, zeros: zeros{}, findings: []Finding{}, order: []string{}}
	l.checkGates(l.flags)
	base := l.loadMain()
	if base == nil {
		base = withoutConfigFile(l.flags, in.Version)
	}
	l.mergeDropIns(base)
	l.finish()
	return l
}

func (l *loading) stopped() bool {
	return slices.ContainsFunc(l.findings, func(f Finding) bool { return f.Outcome == WouldNotStart })
}

func (l *loading) find(o Outcome, p fieldPath, at Origin, format string, args ...any) {
	l.findings = append(l.findings, Finding{
		Outcome: o, Path: p.String(), File: at.File, Line: at.Line,
		Message: fmt.Sprintf(format, args...), Basis: l.basis(p),
	})
}

// basis: what older fields do does not depend on the KEP.
func (l *loading) basis(p fieldPath) Basis {
	b := l.in.Version.Basis()
	about := p.String()
	if b == FromKEP && about != nodeLeaseField && about != "featureGates."+NodeLeaseGate {
		return Inferred
	}
	return b
}

// loadMain decodes the --config file, or says why that is impossible.
func (l *loading) loadMain() *Config {
	f := l.in.Main
	if f == nil {
		return nil
	}
	l.order = append(l.order, f.Name)
	if f.Err != nil {
		l.find(WouldNotStart, nil, Origin{File: f.Name}, "cannot be read: %v", f.Err)
		return nil
	}
	where := linesOf(f.Data)
	doc := rawDocument(f.Data)
	cfg, lenient, err := l.codecs.main(f.Data)
	if err != nil {
		l.undecodable(f.Name, where, doc, err)
		return nil
	}
	l.explainLenient(f.Name, where, doc, lenient)
	l.extraDocument(f.Name, where)
	for _, p := range unknownFields(doc, l.in.Version) {
		remove(doc, p)
	}
	l.recordMain(f.Name, where, doc)
	l.eraseUnknown(cfg)
	l.defaultMain(cfg)
	l.resolvePaths(cfg)
	return cfg
}

// resolvePaths makes the paths of a --config file absolute. Those of a drop-in
// stay as they are.
func (l *loading) resolvePaths(c *Config) {
	for _, p := range []*string{
		&c.StaticPodPath, &c.Authentication.X509.ClientCAFile, &c.TLSCertFile, &c.TLSPrivateKeyFile,
		c.ResolverConfig, &c.VolumePluginDir, &c.PodLogsDir,
	} {
		if *p != "" && !path.IsAbs(*p) {
			*p = path.Join(l.in.MainDir, *p)
		}
	}
}

func (l *loading) defaultMain(cfg *Config) {
	// Defaulting looks at the gates before flags win over them, and before
	// any drop-in could take a bad one back.
	early := l.flags.over(cfg.FeatureGates)
	l.checkGates(early)
	setDefaults(&cfg.KubeletConfiguration, early, l.in.Version)
	switch {
	case cfg.EvictionHard == nil:
		cfg.EvictionHard = maps.Clone(defaultEvictionHard)
	case *cfg.MergeDefaultEvictionSettings:
		for signal, limit := range defaultEvictionHard {
			if _, given := cfg.EvictionHard[signal]; !given {
				cfg.EvictionHard[signal] = limit
			}
		}
	}
}

// explainLenient reports what the strict decoder disliked: the kubelet logs
// one line and drops these.
func (l *loading) explainLenient(name string, where *lines, doc map[string]any, lenient error) {
	unknown := unknownFields(doc, l.in.Version)
	for _, p := range unknown {
		l.find(IgnoredWithWarning, p, Origin{name, where.of(p)}, "%s", l.unknownMessage(p))
	}
	for _, d := range where.dropped {
		l.find(IgnoredWithWarning, d.at, Origin{name, d.line}, "is set again at line %d, and that one counts; delete one of them", where.of(d.at))
	}
	if lenient != nil && len(unknown)+len(where.dropped) == 0 {
		l.find(IgnoredWithWarning, nil, Origin{File: name}, "strict decoding fails, so the kubelet decodes leniently: %v", lenient)
	}
}

func (l *loading) unknownMessage(p fieldPath) string {
	if len(p) == 1 {
		switch first := firstMinor[p[0]]; {
		case p[0] == nodeLeaseField:
			return fmt.Sprintf("kubelet %s has no such field and goes on renewing its Lease; remove it, or wait for 1.%d", l.in.Version, first)
		case first > 0:
			return fmt.Sprintf("kubelet %s has no such field; it comes with 1.%d", l.in.Version, first)
		}
	}
	fields := fieldsOf(typeAt(p[:len(p)-1]))
	if name, ok := spelling(fields, p[len(p)-1]); ok {
		return fmt.Sprintf("no such field; it is spelled %s", name)
	}
	return "no such field; correct the name or remove it"
}

// extraDocument: the decoder reads one document a file, and says nothing of others.
func (l *loading) extraDocument(name string, where *lines) {
	if where.extra > 0 {
		l.find(IgnoredSilently, nil, Origin{name, where.extra}, "a second document begins here, and only the first is read; move it to a file of its own")
	}
}

// undecodable reports every value that does not fit its field, or the
// decoder's own words if there is none.
func (l *loading) undecodable(name string, where *lines, doc map[string]any, err error) {
	bad := misfits(doc, false)
	for _, m := range bad {
		l.find(WouldNotStart, m.at, Origin{name, where.of(m.at)}, "%v", m.why)
	}
	if len(bad) == 0 {
		l.find(WouldNotStart, nil, Origin{File: name}, "%s", decodeMessage(err))
	}
}

// decodeMessage shortens what quotes the whole file.
func decodeMessage(err error) string {
	switch {
	case runtime.IsMissingKind(err):
		return "has no kind; begin it with apiVersion: " + kubeletAPIVersion + " and kind: " + kubeletKind
	case runtime.IsMissingVersion(err):
		return "has no apiVersion; begin it with apiVersion: " + kubeletAPIVersion + " and kind: " + kubeletKind
	case runtime.IsNotRegisteredError(err):
		return "is not a " + kubeletKind + " of " + kubeletAPIVersion
	case runtime.IsStrictDecodingError(err):
		return "is decoded strictly: " + firstLine(err)
	}
	return firstLine(err)
}

func firstLine(err error) string {
	text := strings.TrimSpace(err.Error())
	line, rest, _ := strings.Cut(text, "\n")
	if next := strings.TrimSpace(rest); next != "" && strings.HasSuffix(line, ":") {
		line += " " + strings.TrimSpace(strings.SplitN(next, "\n", 2)[0])
	}
	return line
}

// recordMain remembers where each value of the --config file stands.
func (l *loading) recordMain(name string, where *lines, doc map[string]any) {
	l.zeros.note(doc)
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if key != "apiVersion" && key != "kind" && doc[key] != nil {
			l.origins.write(fieldPath{key}, doc[key], name, where)
		}
	}
}

// eraseUnknown takes away what our type has and this older kubelet has not.
func (l *loading) eraseUnknown(cfg *Config) {
	data, err := json.Marshal(cfg)
	if err != nil {
		return
	}
	doc, err := generic(data)
	if err != nil {
		return
	}
	changed := false
	for name := range firstMinor {
		if _, there := doc[name]; there && !l.in.Version.knowsField(name) {
			delete(doc, name)
			changed = true
		}
	}
	if !changed {
		return
	}
	if data, err = json.Marshal(doc); err == nil {
		*cfg = Config{}
		_ = json.Unmarshal(data, cfg) // it was marshalled from a Config
	}
}

// mergeDropIns merges the *.conf files below --config-dir over base, in the
// order a kubelet walks them.
func (l *loading) mergeDropIns(base *Config) {
	data, err := json.Marshal(base)
	if err == nil {
		l.merged, err = generic(data)
	}
	if err != nil {
		l.find(WouldNotStart, nil, Origin{}, "the configuration cannot be written as JSON: %v", err)
		l.merged = map[string]any{}
	}
	files := slices.Clone(l.in.Dir)
	slices.SortFunc(files, func(a, b File) int { return walkOrder(a.Name, b.Name) })
	for _, f := range files {
		l.mergeDropIn(f)
	}
}

// walkOrder compares paths as a directory walk meets them: name by name, so
// that a directory a comes before a file a.conf.
func walkOrder(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

const dropInSuffix = ".conf"

func (l *loading) mergeDropIn(f File) {
	name := path.Join(l.in.DirName, f.Name)
	if path.Ext(f.Name) != dropInSuffix {
		l.find(IgnoredSilently, nil, Origin{File: name}, "is not read: only files that end in %s are; rename it, or move it out of the directory", dropInSuffix)
		return
	}
	l.order = append(l.order, name)
	if f.Err != nil {
		l.find(WouldNotStart, nil, Origin{File: name}, "cannot be read: %v", f.Err)
		return
	}
	where := linesOf(f.Data)
	patch, err := l.codecs.dropIn(f.Data)
	if err != nil {
		l.badDropIn(name, where, err)
		return
	}
	l.extraDocument(name, where)
	for _, p := range unknownFields(patch, l.in.Version) {
		l.dropInUnknown(name, where, p)
	}
	l.zeros.note(patch)
	delete(patch, "apiVersion")
	delete(patch, "kind")
	merge(l.merged, patch, nil, name, where, l.origins)
}

func (l *loading) badDropIn(name string, where *lines, err error) {
	if !runtime.IsStrictDecodingError(err) || len(where.dropped) == 0 {
		l.find(WouldNotStart, nil, Origin{File: name}, "%s", decodeMessage(err))
		return
	}
	for _, d := range where.dropped {
		l.find(WouldNotStart, d.at, Origin{name, d.line}, "is set again at line %d; a drop-in must not hold a key twice", where.of(d.at))
	}
}

// dropInUnknown: a drop-in is merged before its fields are looked at, so an
// unknown one is lost without a word, and case is forgiven.
func (l *loading) dropInUnknown(name string, where *lines, p fieldPath) {
	fields := fieldsOf(typeAt(p[:len(p)-1]))
	exact, folded := spelling(fields, p[len(p)-1])
	if folded && exact != p[len(p)-1] {
		return // settled when the merged document is decoded
	}
	l.find(IgnoredSilently, p, Origin{name, where.of(p)}, "%s", l.unknownMessage(p))
}

// finish decodes the merged document and judges what came out.
func (l *loading) finish() {
	if len(l.in.Dir) > 0 {
		l.settleSpelling(l.merged, configType, nil)
	}
	for name := range firstMinor {
		if !l.in.Version.knowsField(name) {
			delete(l.merged, name)
			l.origins.forget(fieldPath{name})
			delete(l.origins, name)
		}
	}
	data, err := json.Marshal(l.merged)
	cfg := &Config{}
	if err == nil {
		err = json.Unmarshal(data, cfg)
	}
	if err != nil {
		l.misfitsOfMerged(err)
		return
	}
	final := gates(cfg.FeatureGates).over(l.flags)
	l.checkGates(l.flags.over(cfg.FeatureGates))
	l.checkGates(final)
	l.closedGate(cfg, final)
	setDefaults(&cfg.KubeletConfiguration, final, l.in.Version)
	cfg.FeatureGates = nil
	if len(final) > 0 {
		cfg.FeatureGates = final
	}
	l.resetByFlags(cfg)
	l.zeroIsDefault(cfg)
	l.config = cfg
	if !l.stopped() {
		judge{cfg, final, l.in.Version, l.invalid}.all()
	}
}

// resetByFlags: the kubelet parses its flags again over the files, and the two
// flags for split streams set false even when nobody gives them.
func (l *loading) resetByFlags(cfg *Config) {
	for format, o := range map[string]*bool{
		"text": &cfg.Logging.Options.Text.SplitStream,
		"json": &cfg.Logging.Options.JSON.SplitStream,
	} {
		if *o {
			p := fieldPath{"logging", "options", format, "splitStream"}
			l.find(IgnoredSilently, p, l.originOf(p), "true is overwritten by the default of the flag --log-%s-split-stream; give the kubelet that flag instead", format)
			*o = false
		}
	}
}

// closedGate: with its gate off, enableNodeLease: false does nothing. What a
// kubelet does with it in a drop-in, the KEP does not say; we assume the same.
func (l *loading) closedGate(cfg *Config, g gates) {
	if cfg.EnableNodeLease == nil || *cfg.EnableNodeLease || g.on(NodeLeaseGate, l.in.Version) {
		return
	}
	p := fieldPath{nodeLeaseField}
	l.find(IgnoredWithWarning, p, l.originOf(p),
		"false is ignored and the kubelet goes on renewing its Lease, because featureGates.%s is off (%s); turn the gate on in the same files",
		NodeLeaseGate, l.originOf(fieldPath{"featureGates", NodeLeaseGate}))
	cfg.EnableNodeLease = nil
	l.origins[p.key()] = nil
}

func (l *loading) misfitsOfMerged(err error) {
	bad := misfits(l.merged, true)
	for _, m := range bad {
		l.find(WouldNotStart, m.at, l.originOf(m.at), "%v", m.why)
	}
	if len(bad) == 0 {
		l.find(WouldNotStart, nil, Origin{}, "%v", err)
	}
}

func (l *loading) invalid(p fieldPath, message string) {
	l.find(WouldNotStart, p, l.originOf(p), "%s", message)
}

// checkGates reports gates that the kubelet refuses, once each.
func (l *loading) checkGates(g gates) {
	wrong := g.wrong(l.in.Version)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		p := fieldPath{"featureGates", name}
		at := l.gateOrigin(name, g[name], l.originOf(p))
		f := Finding{WouldNotStart, p.String(), at.File, at.Line, wrong[name], l.basis(p)}
		if !slices.Contains(l.findings, f) {
			l.findings = append(l.findings, f)
		}
	}
}

// originOf is where the value at p was written last, or the closest value
// around it.
func (l *loading) originOf(p fieldPath) Origin {
	for ; len(p) > 0; p = p[:len(p)-1] {
		if all := l.origins[p.key()]; len(all) > 0 {
			return all[len(all)-1]
		}
	}
	return Origin{}
}
