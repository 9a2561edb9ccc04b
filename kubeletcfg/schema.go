package kubeletcfg

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fieldPath is the way to a value from the top of a document, key by key.
type fieldPath []string

func (p fieldPath) child(key string) fieldPath { return append(slices.Clone(p), key) }

// key is p as a map key.
func (p fieldPath) key() string { return strings.Join(p, "\x00") }

// String is p as people write it: logging.format, evictionHard[memory.available].
func (p fieldPath) String() string {
	var b strings.Builder
	for i, key := range p {
		switch {
		case strings.ContainsAny(key, "./ "):
			b.WriteString("[" + key + "]")
		case i > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}
	return b.String()
}

var (
	configType      = reflect.TypeFor[Config]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// fieldsOf lists the JSON fields of a struct, embedded ones included, as
// encoding/json sees them. It is nil for whatever decodes as one value.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if t == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(fields, fieldsOf(f.Type))
		case name != "" && name != "-":
			fields[name] = f.Type
		}
	}
	return fields
}

// elemOf is the type of the values of a map, nil for everything else.
func elemOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Map || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	return t.Elem()
}

// itemOf is the type of the items of a list, nil for everything else.
func itemOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Slice || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	return t.Elem()
}

// unknownFields lists the paths in doc that a kubelet has no field for. The
// top level also depends on its version.
func unknownFields(doc map[string]any, v Version) []fieldPath {
	var found []fieldPath
	walkUnknown(doc, configType, nil, func(p fieldPath) { found = append(found, p) })
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		if _, ok := fieldsOf(configType)[name]; ok && !v.knowsField(name) {
			found = append(found, fieldPath{name})
		}
	}
	return found
}

func walkUnknown(value any, t reflect.Type, at fieldPath, report func(fieldPath)) {
	switch v := value.(type) {
	case map[string]any:
		fields, elem := fieldsOf(t), elemOf(t)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			child, known := fields[key]
			switch {
			case elem != nil:
				walkUnknown(v[key], elem, at.child(key), report)
			case known:
				walkUnknown(v[key], child, at.child(key), report)
			case fields != nil:
				report(at.child(key))
			}
		}
	case []any:
		if item := itemOf(t); item != nil {
			for i, each := range v {
				walkUnknown(each, item, at.child(strconv.Itoa(i)), report)
			}
		}
	}
}

// spelling is the field that encoding/json takes key for. It forgives case
// where the exact name is not there; a kubelet decodes merged drop-ins that way.
func spelling(fields map[string]reflect.Type, key string) (string, bool) {
	if _, ok := fields[key]; ok {
		return key, true
	}
	for name := range fields {
		if strings.EqualFold(name, key) {
			return name, true
		}
	}
	return "", false
}

// misfit is a value that does not decode into its field.
type misfit struct {
	at  fieldPath
	why error
}

// misfits lists every value of doc that its field cannot hold. The decoders
// stop at the first; people want all of them.
func misfits(doc map[string]any, fold bool) []misfit {
	var found []misfit
	walkTypes(doc, configType, nil, fold, func(m misfit) { found = append(found, m) })
	return found
}

func walkTypes(value any, t reflect.Type, at fieldPath, fold bool, report func(misfit)) {
	if m, ok := value.(map[string]any); ok {
		if fields := fieldsOf(t); fields != nil {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				name, known := key, fields[key] != nil
				if fold {
					name, known = spelling(fields, key)
				}
				if known {
					walkTypes(m[key], fields[name], at.child(key), fold, report)
				}
			}
			return
		}
		if elem := elemOf(t); elem != nil {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				walkTypes(m[key], elem, at.child(key), fold, report)
			}
			return
		}
	}
	if err := fits(value, t); err != nil {
		report(misfit{at, err})
	}
}

func fits(value any, t reflect.Type) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	err = json.Unmarshal(data, reflect.New(t).Interface())
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return errors.New("a " + wrong.Value + " where the field holds " + kindName(t))
	}
	return err
}

func kindName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32, reflect.Int64, reflect.Uint32:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		if t.Name() == "Duration" {
			return `a duration such as "10s"`
		}
		return "a map"
	}
	return t.String()
}

// generic decodes JSON without rounding its numbers.
func generic(data []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var out map[string]any
	return out, d.Decode(&out)
}

// typeAt is the type of the field at p, nil where there is none.
func typeAt(p fieldPath) reflect.Type {
	t := configType
	for _, key := range p {
		if fields := fieldsOf(t); fields != nil {
			name, ok := spelling(fields, key)
			if !ok {
				return nil
			}
			t = fields[name]
		} else if elem := elemOf(t); elem != nil {
			t = elem
		} else if t = itemOf(t); t == nil {
			return nil
		}
	}
	return t
}

// remove deletes the value at p, if there is one.
func remove(value any, p fieldPath) {
	for ; len(p) > 1; p = p[1:] {
		switch v := value.(type) {
		case map[string]any:
			value = v[p[0]]
		case []any:
			i, err := strconv.Atoi(p[0])
			if err != nil || i >= len(v) {
				return
			}
			value = v[i]
		}
	}
	if m, ok := value.(map[string]any); ok {
		delete(m, p[0])
	}
}
