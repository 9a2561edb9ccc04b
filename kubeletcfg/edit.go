package kubeletcfg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Change sets one field of a KubeletConfiguration to a scalar.
type Change struct {
	// Path from the top, one or two keys long: {"featureGates", "Name"}.
	Path []string
	// Value as it is written in YAML and JSON alike: true, false, a number.
	Value string
}

// LeaseOffChanges turns the Lease off: the field, and the gate without which
// the field does nothing.
func LeaseOffChanges() []Change {
	return []Change{
		{Path: []string{"featureGates", NodeLeaseGate}, Value: "true"},
		{Path: []string{nodeLeaseField}, Value: "false"},
	}
}

// LeaseOnChanges turns the Lease on again. The gate may stay.
func LeaseOnChanges() []Change {
	return []Change{{Path: []string{nodeLeaseField}, Value: "true"}}
}

// LeaseDurationChange sets how long a Lease is good for, in seconds.
func LeaseDurationChange(seconds int32) Change {
	return Change{Path: []string{leaseDurationField}, Value: fmt.Sprint(seconds)}
}

// Edit makes changes in a file that holds a KubeletConfiguration, be it alone
// or beside other documents as in a kubeadm configuration, YAML or JSON. Every
// byte that does not belong to a change stays: comments, order, unknown
// fields, line ends. What is set already stays as it is. A file in which a
// change cannot be made that way is refused; the error joins what is wrong with
// each change, with the lines of data. No two changes may share their first key.
func Edit(data []byte, changes ...Change) ([]byte, error) {
	if err := checkPaths(changes); err != nil {
		return nil, err
	}
	before, err := documents(data)
	if err != nil {
		return nil, err
	}
	root, err := kubeletRoot(before)
	if err != nil {
		return nil, err
	}
	s := splicer{data: data, json: looksLikeJSON(data), lineEnd: lineEnd(data)}
	cuts, err := s.find(root, changes)
	if err != nil || len(cuts) == 0 {
		return data, err
	}
	edited := splice(data, cuts)
	if err := verify(before, edited, changes...); err != nil {
		return nil, err
	}
	return edited, nil
}

// checkPaths refuses changes whose places depend on one another: two gates
// cannot both be the first in a mapping that is not there yet.
func checkPaths(changes []Change) error {
	seen := map[string]bool{}
	for _, c := range changes {
		if n := len(c.Path); n == 0 || n > 2 {
			return fmt.Errorf("%s: can set fields one or two levels deep, not %d", fieldPath(c.Path), n)
		}
		if seen[c.Path[0]] {
			return fmt.Errorf("%s: %s is changed already; make one change after the other", fieldPath(c.Path), c.Path[0])
		}
		seen[c.Path[0]] = true
	}
	return nil
}

// documents parses all documents of a file, and refuses what would make
// positions unreliable.
func documents(data []byte) ([]*yaml.Node, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the file is not UTF-8")
	}
	plain := bytes.ReplaceAll(data, []byte("\r\n"), nil)
	if bytes.ContainsAny(plain, "\r\u0085\u2028\u2029") {
		return nil, errors.New("the file has unusual line ends (a lone CR, NEL, LS or PS); convert them first")
	}
	var docs []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		doc := &yaml.Node{}
		switch err := d.Decode(doc); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		}
		docs = append(docs, doc)
	}
}

// kubeletRoot finds the mapping of the one KubeletConfiguration.
func kubeletRoot(docs []*yaml.Node) (*yaml.Node, error) {
	var found *yaml.Node
	unclear := fmt.Errorf("there is no document with kind: %s", kubeletKind)
	for _, doc := range docs {
		root := doc.Content[0]
		if root.Kind != yaml.MappingNode {
			continue
		}
		switch is, err := isScalar(root, "kind", kubeletKind); {
		case err != nil:
			unclear = err // it may be the one, if no other is
			continue
		case !is:
			continue
		}
		switch is, err := isScalar(root, "apiVersion", kubeletAPIVersion); {
		case err != nil:
			return nil, err
		case !is:
			return nil, fmt.Errorf("line %d: the %s is not of %s", root.Line, kubeletKind, kubeletAPIVersion)
		case found != nil:
			return nil, fmt.Errorf("lines %d and %d: there are two documents of kind %s; split the file", found.Line, root.Line, kubeletKind)
		}
		found = root
	}
	if found == nil {
		return nil, unclear
	}
	return found, nil
}

func isScalar(m *yaml.Node, key, value string) (bool, error) {
	_, v, err := pair(m, key)
	return v != nil && v.Kind == yaml.ScalarNode && v.Value == value, err
}

// pair finds a key of a mapping and its value; both are nil if it is not there.
func pair(m *yaml.Node, key string) (k, v *yaml.Node, err error) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		switch {
		case m.Content[i].Tag == "!!merge":
			return nil, nil, fmt.Errorf("line %d: the mapping is completed by <<, so what it holds is written elsewhere", m.Content[i].Line)
		case m.Content[i].Value != key:
		case k != nil:
			return nil, nil, fmt.Errorf("lines %d and %d: %s is there twice; delete one", k.Line, m.Content[i].Line, key)
		default:
			k, v = m.Content[i], m.Content[i+1]
		}
	}
	return k, v, nil
}

var errCannotKeep = errors.New("the file is written in a way that cannot be kept; make this change by hand")

// verify parses the result again: it must be the old tree with the changes.
func verify(before []*yaml.Node, edited []byte, changes ...Change) error {
	after, err := documents(edited)
	if err != nil || len(after) != len(before) {
		return errCannotKeep // err has lines of a text that nobody has seen
	}
	root, err := kubeletRoot(after)
	if err != nil {
		return errCannotKeep
	}
	paths := make([][]string, len(changes))
	for i, c := range changes {
		if paths[i] = c.Path; !holds(root, c) {
			return errCannotKeep
		}
	}
	for i := range before {
		if !sameBut(before[i], after[i], root, paths) {
			return errors.New("the change would reach further than the field; make it by hand")
		}
	}
	return nil
}

// holds says whether a change is in a mapping.
func holds(value *yaml.Node, c Change) bool {
	for _, key := range c.Path {
		var err error
		if _, value, err = pair(value, key); err != nil || value == nil {
			return false
		}
	}
	return value.Value == c.Value
}

// sameBut compares two trees without positions and comments. Below changed, a
// mapping of the second tree, the paths may differ.
func sameBut(a, b, changed *yaml.Node, paths [][]string) bool {
	if b == changed {
		return sameMapping(a, b, paths)
	}
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || a.Anchor != b.Anchor || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameBut(a.Content[i], b.Content[i], changed, paths) {
			return false
		}
	}
	return true
}

func sameMapping(a, b *yaml.Node, paths [][]string) bool {
	for _, path := range paths {
		var inA, inB *yaml.Node
		a, inA = without(a, path[0])
		b, inB = without(b, path[0])
		if len(path) == 1 {
			continue
		}
		if inA == nil || inA.Kind != yaml.MappingNode {
			inA = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		}
		if !sameMapping(inA, inB, [][]string{path[1:]}) {
			return false
		}
	}
	return sameBut(a, b, nil, nil)
}

// without is a mapping less one key, and the value of that key.
func without(m *yaml.Node, key string) (*yaml.Node, *yaml.Node) {
	rest, value := *m, (*yaml.Node)(nil)
	rest.Content = nil
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			value = m.Content[i+1]
			continue
		}
		rest.Content = append(rest.Content, m.Content[i], m.Content[i+1])
	}
	return &rest, value
}

// lineEnd is what most lines of the file end with.
func lineEnd(data []byte) string {
	if crlf := bytes.Count(data, []byte("\r\n")); crlf > 0 && 2*crlf >= bytes.Count(data, []byte("\n")) {
		return "\r\n"
	}
	return "\n"
}

// cut replaces bytes from one offset to another.
type cut struct {
	from, to int
	text     string
}

func (c cut) nothing() bool { return c.from == c.to && c.text == "" }

// splice makes the cuts from the end of the text, so that none moves the place
// of another. Where two add at one place, the later is put before the earlier.
func splice(data []byte, cuts []cut) []byte {
	slices.SortStableFunc(cuts, func(a, b cut) int { return b.from - a.from })
	text := string(data)
	for _, c := range cuts {
		text = text[:c.from] + c.text + text[c.to:]
	}
	return []byte(text)
}

// splicer turns a change into one cut.
type splicer struct {
	data    []byte
	json    bool
	lineEnd string
}

// find has the cuts of all changes that are not made yet, or all that is wrong.
func (s splicer) find(root *yaml.Node, changes []Change) ([]cut, error) {
	var cuts []cut
	var errs []error
	for _, c := range changes {
		switch one, err := s.set(root, c); {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", fieldPath(c.Path), err))
		case !one.nothing():
			cuts = append(cuts, one)
		}
	}
	return cuts, errors.Join(errs...)
}

func (s splicer) set(root *yaml.Node, c Change) (cut, error) {
	key, value, err := pair(root, c.Path[0])
	switch {
	case err != nil:
		return cut{}, err
	case key == nil && len(c.Path) == 1:
		return s.add(root, c.Path[0], c.Value)
	case key == nil:
		return s.addMap(root, c)
	case len(c.Path) == 1:
		return s.replace(key, value, c.Value)
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		return s.fill(key, value, c)
	case value.Kind != yaml.MappingNode || value.Anchor != "":
		return cut{}, fmt.Errorf("line %d: %s is no plain mapping", key.Line, c.Path[0])
	}
	child, scalar, err := pair(value, c.Path[1])
	if err != nil {
		return cut{}, err
	}
	if child != nil {
		return s.replace(child, scalar, c.Value)
	}
	return s.addChild(key, value, c)
}

// replace swaps a scalar for another, if it is written in one simple piece.
func (s splicer) replace(key, old *yaml.Node, value string) (cut, error) {
	if old.Kind != yaml.ScalarNode || old.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return cut{}, fmt.Errorf("line %d: the value is not a simple one", key.Line)
	}
	if old.Value == value && old.Style == 0 {
		return cut{}, nil
	}
	if old.Anchor != "" {
		return cut{}, fmt.Errorf("line %d: the value has the anchor &%s and may be used elsewhere; make this change by hand", key.Line, old.Anchor)
	}
	from := s.offset(old)
	for _, quote := range []string{"", `"`, `'`} {
		text := quote + old.Value + quote
		plain := old.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
		if plain == (quote == "") && text != "" && bytes.HasPrefix(s.data[from:], []byte(text)) {
			return cut{from, from + len(text), value}, nil
		}
	}
	return cut{}, fmt.Errorf("line %d: the value is empty or written in a way that cannot be kept", key.Line)
}

// add puts a new field into the root, below the line of kind.
func (s splicer) add(root *yaml.Node, name, value string) (cut, error) {
	if root.Style&yaml.FlowStyle != 0 {
		return s.addToFlow(root, s.quoted(name)+": "+value)
	}
	return s.addLines(root, name+": "+value)
}

// addMap puts a mapping with one key into the root.
func (s splicer) addMap(root *yaml.Node, c Change) (cut, error) {
	if root.Style&yaml.FlowStyle != 0 {
		return s.addToFlow(root, s.quoted(c.Path[0])+": {"+s.quoted(c.Path[1])+": "+c.Value+"}")
	}
	return s.addLines(root, c.Path[0]+":", "  "+c.Path[1]+": "+c.Value)
}

func (s splicer) addLines(root *yaml.Node, lines ...string) (cut, error) {
	key, kind, err := pair(root, "kind")
	if err != nil {
		return cut{}, err
	}
	if kind.Line != key.Line || kind.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return cut{}, fmt.Errorf("line %d: kind is not written on one line", key.Line)
	}
	indent := strings.Repeat(" ", key.Column-1)
	if s.offset(key) != s.lineStart(key.Line)+len(indent) {
		return cut{}, fmt.Errorf("line %d: kind does not begin its line", key.Line)
	}
	return s.insertBelow(key.Line, indent, lines...), nil
}

// fill gives a null mapping its first key.
func (s splicer) fill(key, null *yaml.Node, c Change) (cut, error) {
	if null.Value != "" {
		return s.replace(key, null, "{"+s.quoted(c.Path[1])+": "+c.Value+"}")
	}
	indent := strings.Repeat(" ", key.Column+1)
	return s.insertBelow(key.Line, indent, c.Path[1]+": "+c.Value), nil
}

// addChild puts a new key into a mapping one level down.
func (s splicer) addChild(key, m *yaml.Node, c Change) (cut, error) {
	if m.Style&yaml.FlowStyle != 0 {
		return s.addToFlow(m, s.quoted(c.Path[1])+": "+c.Value)
	}
	first := m.Content[0]
	if first.Line == key.Line {
		return cut{}, fmt.Errorf("line %d: the mapping begins on the line of its key", key.Line)
	}
	return s.insertBelow(key.Line, strings.Repeat(" ", first.Column-1), c.Path[1]+": "+c.Value), nil
}

// addToFlow puts an entry first into {…}, on a line of its own if the others
// have theirs.
func (s splicer) addToFlow(m *yaml.Node, entry string) (cut, error) {
	at := s.offset(m)
	if at >= len(s.data) || s.data[at] != '{' {
		return cut{}, fmt.Errorf("line %d: the mapping is not written in a way that can be kept", m.Line)
	}
	at++
	switch {
	case len(m.Content) == 0:
		return cut{at, at, entry}, nil
	case m.Content[0].Line == m.Line:
		return cut{at, at, entry + ", "}, nil
	}
	first := m.Content[0]
	start := s.lineStart(first.Line)
	indent := string(s.data[start:s.offset(first)])
	if strings.TrimLeft(indent, " \t") != "" {
		return cut{}, fmt.Errorf("line %d: the first entry does not begin its line", first.Line)
	}
	return cut{at, at, s.lineEnd + indent + entry + ","}, nil
}

func (s splicer) quoted(name string) string {
	if s.json {
		return `"` + name + `"`
	}
	return name
}

// insertBelow adds whole lines under a line, which may be the last one and
// lack its end.
func (s splicer) insertBelow(line int, indent string, lines ...string) cut {
	text := indent + strings.Join(lines, s.lineEnd+indent)
	at := s.lineStart(line + 1)
	if at == len(s.data) && !bytes.HasSuffix(s.data, []byte("\n")) {
		return cut{at, at, s.lineEnd + text}
	}
	return cut{at, at, text + s.lineEnd}
}

// lineStart is the offset of a line; past the last one it is the end.
func (s splicer) lineStart(line int) int {
	at := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(s.data[at:], '\n')
		if next < 0 {
			return len(s.data)
		}
		at += next + 1
	}
	return at
}

// offset is where a node begins. Columns count characters, not bytes.
func (s splicer) offset(n *yaml.Node) int {
	at := s.lineStart(n.Line)
	for column := 1; column < n.Column && at < len(s.data); column++ {
		_, size := utf8.DecodeRune(s.data[at:])
		at += size
	}
	return at
}
