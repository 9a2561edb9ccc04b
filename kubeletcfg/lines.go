package kubeletcfg

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// lines knows where in a file each value stands.
type lines struct {
	at map[string]int // by path.key()
	// dropped are earlier entries of a key that is there twice.
	dropped []spot
	// extra is the line of the first further document, 0 if there is none.
	extra int
}

type spot struct {
	at   fieldPath
	line int
}

// linesOf finds the values of the first document in data. It is for messages
// only: what a value is, the kubelet's own decoders decide. A document it
// cannot read has no lines.
func linesOf(data []byte) *lines {
	l := &lines{at: map[string]int{}}
	if looksLikeJSON(data) {
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := d.Decode(&first); err != nil {
		return l
	}
	l.walk(&first, nil, map[*yaml.Node]bool{})
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		l.extra = max(second.Line, 1)
	}
	return l
}

func looksLikeJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))
}

// mostLines bounds the walk: aliases of aliases can stand for any number of values.
const mostLines = 100_000

// walk follows aliases, but never into themselves.
func (l *lines) walk(n *yaml.Node, at fieldPath, inside map[*yaml.Node]bool) {
	if len(l.at) > mostLines || len(at) > 100 {
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			l.walk(child, at, inside)
		}
	case yaml.AliasNode:
		if !inside[n.Alias] {
			inside[n.Alias] = true
			l.walk(n.Alias, at, inside)
			delete(inside, n.Alias)
		}
	case yaml.MappingNode:
		l.walkMapping(n, at, inside)
	}
}

func (l *lines) walkMapping(n *yaml.Node, at fieldPath, inside map[*yaml.Node]bool) {
	here := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			l.walk(value, at, inside)
			continue
		}
		child := at.child(key.Value)
		if before, twice := here[key.Value]; twice {
			l.dropped = append(l.dropped, spot{child, before})
		}
		here[key.Value] = key.Line
		l.at[child.key()] = key.Line
		l.walk(value, child, inside)
	}
}

// of is the line of a value, or of the closest value around it.
func (l *lines) of(p fieldPath) int {
	for ; len(p) > 0; p = p[:len(p)-1] {
		if line, ok := l.at[p.key()]; ok {
			return line
		}
	}
	return 0
}
