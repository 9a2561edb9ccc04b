package kubeletcfg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
// change cannot be made that way is refused.
func Edit(data []byte, changes ...Change) ([]byte, error) {
	for _, c := range changes {
		edited, err := edit(data, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fieldPath(c.Path), err)
		}
		data = edited
	}
	return data, nil
}

func edit(data []byte, c Change) ([]byte, error) {
	if n := len(c.Path); n == 0 || n > 2 {
		return nil, fmt.Errorf("can set fields one or two levels deep, not %d", n)
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
	cut, err := s.set(root, c)
	if err != nil || cut.nothing() {
		return data, err
	}
	edited := cut.apply(data)
	return edited, verify(before, edited, c)
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
	for _, doc := range docs {
		root := doc.Content[0]
		if root.Kind != yaml.MappingNode || !isScalar(root, "kind", kubeletKind) {
			continue
		}
		if !isScalar(root, "apiVersion", kubeletAPIVersion) {
			return nil, fmt.Errorf("line %d: the %s is not of %s", root.Line, kubeletKind, kubeletAPIVersion)
		}
		if found != nil {
			return nil, fmt.Errorf("lines %d and %d: there are two documents of kind %s; split the file", found.Line, root.Line, kubeletKind)
		}
		found = root
	}
	if found == nil {
		return nil, fmt.Errorf("there is no document with kind: %s", kubeletKind)
	}
	return found, nil
}

func isScalar(m *yaml.Node, key, value string) bool {
	_, v, err := pair(m, key)
	return err == nil && v != nil && v.Kind == yaml.ScalarNode && v.Value == value
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

// verify parses the result again: it must be the old tree with the one change.
func verify(before []*yaml.Node, edited []byte, c Change) error {
	after, err := documents(edited)
	if err != nil {
		return fmt.Errorf("the file is written in a way that cannot be kept; make this change by hand: %w", err)
	}
	if len(after) != len(before) {
		return errCannotKeep
	}
	root, err := kubeletRoot(after)
	if err != nil {
		return err
	}
	value := root
	for _, key := range c.Path {
		if _, value, err = pair(value, key); err != nil || value == nil {
			return errCannotKeep
		}
	}
	for i := range before {
		if value.Value != c.Value || !sameBut(before[i], after[i], root, c.Path) {
			return errors.New("the change would reach further than the field; make it by hand")
		}
	}
	return nil
}

// sameBut compares two trees without positions and comments. Below changed, a
// mapping of the second tree, the path may differ.
func sameBut(a, b, changed *yaml.Node, at []string) bool {
	if b == changed && len(at) > 0 {
		return sameMapping(a, b, at)
	}
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || a.Anchor != b.Anchor || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameBut(a.Content[i], b.Content[i], changed, at) {
			return false
		}
	}
	return true
}

func sameMapping(a, b *yaml.Node, at []string) bool {
	restA, valueA := without(a, at[0])
	restB, valueB := without(b, at[0])
	if !sameBut(restA, restB, nil, nil) {
		return false
	}
	if len(at) == 1 || valueB == nil {
		return true
	}
	if valueA == nil || valueA.Kind != yaml.MappingNode {
		valueA = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	return sameBut(valueA, valueB, valueB, at[1:])
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

func (c cut) apply(data []byte) []byte {
	return []byte(string(data[:c.from]) + c.text + string(data[c.to:]))
}

// splicer turns a change into one cut.
type splicer struct {
	data    []byte
	json    bool
	lineEnd string
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
		return s.replace(value, c.Value)
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		return s.fill(key, value, c)
	case value.Kind != yaml.MappingNode || value.Anchor != "":
		return cut{}, fmt.Errorf("line %d: %s is no plain mapping", value.Line, c.Path[0])
	}
	child, scalar, err := pair(value, c.Path[1])
	if err != nil {
		return cut{}, err
	}
	if child != nil {
		return s.replace(scalar, c.Value)
	}
	return s.addChild(key, value, c)
}

// replace swaps a scalar for another, if it is written in one simple piece.
func (s splicer) replace(old *yaml.Node, value string) (cut, error) {
	if old.Kind != yaml.ScalarNode || old.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return cut{}, fmt.Errorf("line %d: the value is not a simple one", old.Line)
	}
	if old.Value == value && old.Style == 0 {
		return cut{}, nil
	}
	from := s.offset(old)
	for _, quote := range []string{"", `"`, `'`} {
		text := quote + old.Value + quote
		plain := old.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
		if plain == (quote == "") && text != "" && bytes.HasPrefix(s.data[from:], []byte(text)) {
			return cut{from, from + len(text), value}, nil
		}
	}
	return cut{}, fmt.Errorf("line %d: the value is empty or written in a way that cannot be kept", old.Line)
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
		return s.replace(null, "{"+s.quoted(c.Path[1])+": "+c.Value+"}")
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
