package kubeletcfg

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// settleSpelling decides what keys count for that match a field but for case.
// A kubelet decodes its merged drop-ins with encoding/json, which forgives
// case and takes keys in byte order, so MaxPods loses to maxPods and maxpods
// wins over it. What wins is moved to the field it sets.
func (l *loading) settleSpelling(value any, t reflect.Type, at fieldPath) {
	switch v := value.(type) {
	case map[string]any:
		l.settleKeys(v, t, at)
	case []any:
		if item := itemOf(t); item != nil {
			for i, each := range v {
				l.settleSpelling(each, item, at.child(strconv.Itoa(i)))
			}
		}
	}
}

func (l *loading) settleKeys(doc map[string]any, t reflect.Type, at fieldPath) {
	fields, elem := fieldsOf(t), elemOf(t)
	last := map[string]string{} // by field: the key that counts so far
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if elem != nil {
			l.settleSpelling(doc[key], elem, at.child(key))
			continue
		}
		name, known := spelling(fields, key)
		if !known {
			continue
		}
		l.settleSpelling(doc[key], fields[name], at.child(key))
		if before, two := last[name]; two && before != name {
			l.lostSpelling(doc, at, before, key)
		}
		last[name] = key
	}
	for name, key := range last {
		if name != key {
			l.wonSpelling(doc, at, name, key)
		}
	}
}

func (l *loading) lostSpelling(doc map[string]any, at fieldPath, lost, won string) {
	p := at.child(lost)
	l.find(IgnoredSilently, p, l.originOf(p), "is not how the field is spelled, and %s counts instead; delete it", at.child(won))
	delete(doc, lost)
	delete(l.origins, p.key())
}

func (l *loading) wonSpelling(doc map[string]any, at fieldPath, name, key string) {
	p, field := at.child(key), at.child(name)
	if typeAt(field).Kind() == reflect.Map || fieldsOf(typeAt(field)) != nil {
		return // decoded into what is there; too rare to untangle
	}
	l.find(Applied, p, l.originOf(p), "is not how the field is spelled; a drop-in may set %s this way, a --config file may not: correct it", name)
	doc[name] = doc[key]
	delete(doc, key)
	l.origins[field.key()] = append(l.origins[field.key()], l.originOf(p))
	delete(l.origins, p.key())
}
