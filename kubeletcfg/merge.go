package kubeletcfg

// origins remembers where each value of a merged document was written, and
// which earlier places it replaced.
type origins map[string][]Origin // by path.key(); the last one counts

// write records that the value at p, with everything below it, stands at line
// of file.
func (o origins) write(p fieldPath, value any, file string, l *lines) {
	if m, ok := value.(map[string]any); ok && len(m) > 0 {
		for key, child := range m {
			o.write(p.child(key), child, file, l)
		}
		return
	}
	o[p.key()] = append(o[p.key()], Origin{File: file, Line: l.of(p)})
}

// forget drops everything below p, but not p itself.
func (o origins) forget(p fieldPath) {
	prefix := p.key() + "\x00"
	for key := range o {
		if len(key) > len(prefix) && key[:len(prefix)] == prefix {
			delete(o, key)
		}
	}
}

// merge applies a JSON merge patch (RFC 7386) to doc, as a kubelet does with a
// drop-in: maps key by key, null deletes, everything else replaces. note is
// told what stands where afterwards.
func merge(doc, patch map[string]any, at fieldPath, file string, l *lines, o origins) {
	for key, value := range patch {
		p := at.child(key)
		if value == nil {
			delete(doc, key)
			o.forget(p)
			o.write(p, nil, file, l)
			continue
		}
		below, isMap := value.(map[string]any)
		inDoc, wasMap := doc[key].(map[string]any)
		if isMap && wasMap {
			merge(inDoc, below, p, file, l, o)
			continue
		}
		o.forget(p)
		doc[key] = withoutNulls(value)
		o.write(p, doc[key], file, l)
	}
}

// withoutNulls is value as the patch leaves it where nothing stood before.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if child == nil {
				delete(v, key)
			} else {
				v[key] = withoutNulls(child)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return value
}
