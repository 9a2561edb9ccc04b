package kubeletcfg

import (
	"encoding/json"
	"maps"
	"strings"
	"time"
)

const leaseDurationField = "nodeLeaseDurationSeconds"

// zeros remembers the settings that stand as zero in the last document that
// sets them: for most of them a kubelet takes its default then.
type zeros map[string]zero // by path.key()

type zero struct {
	at   fieldPath
	text string // as the document has it
	// unasked: a program wrote it, because it writes that field always.
	unasked bool
}

// note takes a document in, over those before.
func (z zeros) note(doc map[string]any) {
	program := asPrograms(doc)
	leaves(doc, configType, nil, func(p fieldPath, value any) {
		key := p.key()
		maps.DeleteFunc(z, func(k string, _ zero) bool { return strings.HasPrefix(k, key+"\x00") })
		delete(z, key)
		if text, is := zeroText(value); is {
			z[key] = zero{p, text, program && alwaysWritten[key] != nil}
		}
	})
}

// zeroText is a number, duration or text that is zero, as people write it.
func zeroText(value any) (string, bool) {
	switch v := value.(type) {
	case json.Number:
		n, err := v.Float64()
		return v.String(), err == nil && n == 0
	case string:
		d, err := time.ParseDuration(v)
		if v == "" {
			return `""`, true
		}
		return v, err == nil && d == 0
	}
	return "", false
}

// alwaysWritten are the settings that a program writes whether anybody asked
// for them or not, because their Go types have no absence: durations above all.
var alwaysWritten = leavesOf(&Config{})

// asPrograms: is doc complete in those, as the files that kubeadm writes are?
// Nobody writes them all by hand.
func asPrograms(doc map[string]any) bool {
	for _, p := range alwaysWritten {
		if _, there := doc[p.at[0]]; !there && len(p.at) == 1 {
			return false
		}
	}
	return true
}

type leaf struct {
	at    fieldPath
	value any
}

// leavesOf is c as it would be written, by path.key().
func leavesOf(c *Config) map[string]*leaf {
	all := map[string]*leaf{}
	data, err := json.Marshal(c)
	if err != nil {
		return all
	}
	doc, err := generic(data)
	if err != nil {
		return all
	}
	leaves(doc, configType, nil, func(p fieldPath, value any) { all[p.key()] = &leaf{p, value} })
	return all
}

// zeroIsDefault: a zero that means the default counts as one that nobody gave,
// and is worth a word where somebody wrote it: it looks as if it did something.
func (l *loading) zeroIsDefault(cfg *Config) {
	effective := leavesOf(cfg)
	for key, z := range l.zeros {
		used := effective[key]
		if used == nil {
			continue
		}
		if _, kept := zeroText(used.value); kept {
			continue
		}
		remedy := "write that, or leave it out"
		if key == leaseDurationField {
			remedy = "it does not turn the Lease off"
		}
		if !z.unasked {
			l.find(IgnoredSilently, z.at, l.originOf(z.at), "%s means the default, %v; %s", z.text, used.value, remedy)
		}
		l.origins[key] = nil
	}
}
