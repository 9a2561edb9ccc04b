package webhook

import (
	"strings"
	"sync"

	"github.com/nodewarden/nodewarden/contract"
)

const (
	// maxWriters bounds how many writers beside the configured ones get a
	// label of their own, for the life of the process.
	maxWriters = 50
	// maxWriterLabel bounds a label, in bytes.
	maxWriterLabel = 96
	// otherWriters is the label of everybody else.
	otherWriters = "other"
	// otherKubelets is the label of kubelets that write to another Node. There
	// are as many as nodes.
	otherKubelets = "system:node:*"
)

// writers gives user names to metrics without letting users grow them.
type writers struct {
	mu    sync.Mutex
	named map[string]struct{}
	room  int
}

func newWriters(known []contract.Identity) *writers {
	w := &writers{named: map[string]struct{}{otherKubelets: {}}, room: maxWriters}
	for _, id := range known {
		w.named[writerLabel(id.User)] = struct{}{}
	}
	return w
}

// label returns what stands for u: the namespace and name of a service account,
// or a user name.
func (w *writers) label(u contract.User) string {
	l := writerLabel(u.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.named[l]; ok {
		return l
	}
	if w.room == 0 {
		return otherWriters
	}
	w.room--
	l = strings.Clone(l) // not the review that it was part of
	w.named[l] = struct{}{}
	return l
}

func writerLabel(user string) string {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		return bounded(strings.Replace(account, ":", "/", 1), maxWriterLabel)
	}
	if strings.HasPrefix(user, "system:node:") {
		return otherKubelets
	}
	return bounded(user, maxWriterLabel)
}

// bounded returns s in at most n bytes of valid UTF-8 on one line.
func bounded(s string, n int) string {
	cut := ""
	if len(s) > n {
		cut = "..."
		s = s[:n-len(cut)]
	}
	s = strings.ToValidUTF8(s, "") + cut
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
