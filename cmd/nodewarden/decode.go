package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// decode reads the one YAML or JSON document in text as an API server reads it:
// by the exact names of its fields. It returns notes on those it does not know.
func decode(text []byte, into any) ([]string, error) {
	document, err := only(text)
	if err != nil {
		return nil, err
	}
	// encoding/json says where a value of another type stands, and the strict
	// reader what is there twice.
	if err := json.Unmarshal(document, reflect.New(reflect.TypeOf(into).Elem()).Interface()); err != nil {
		return nil, unreadable(document, err)
	}
	problems, err := kjson.UnmarshalStrict(document, into)
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, p := range problems {
		if !strings.HasPrefix(p.Error(), "unknown field") {
			return nil, p
		}
		notes = append(notes, p.Error()+": it is passed over")
	}
	return notes, nil
}

// only is the one document in text, as JSON. JSON is taken as such: its escapes
// are not all YAML's.
func only(text []byte) ([]byte, error) {
	if trimmed := bytes.TrimSpace(text); json.Valid(trimmed) {
		return trimmed, nil
	}
	documents := yamlv3.NewDecoder(bytes.NewReader(text))
	var first, next yamlv3.Node
	if err := documents.Decode(&first); err != nil {
		return nil, err
	}
	if err := documents.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds several YAML documents: want one")
	}
	return yaml.YAMLToJSONStrict(text)
}

// unreadable is err, which names Go's types, as an error at the value.
func unreadable(document []byte, err error) error {
	var wrong *json.UnmarshalTypeError
	var noTime *time.ParseError
	switch {
	case errors.As(err, &wrong):
		at, is := find(document, func(_ json.Token, end int64, _ []step) bool { return end >= wrong.Offset })
		return fmt.Errorf("%s is %s: want %s", at, is, kindOf(wrong.Type))
	case errors.As(err, &noTime):
		text := strings.Trim(noTime.Value, `"`)
		at, is := find(document, func(t json.Token, _ int64, _ []step) bool { return t == text })
		return fmt.Errorf("%s is %s: want a time such as 2026-01-31T10:00:00Z", at, is)
	case errors.Is(err, resource.ErrFormatWrong), errors.Is(err, resource.ErrSuffix), errors.Is(err, resource.ErrNumeric):
		at, is := find(document, func(t json.Token, _ int64, way []step) bool { return amount(way) && !countable(t) })
		return fmt.Errorf("%s is %s: want an amount such as 4, 500m or 16Gi", at, is)
	}
	return err
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text, which needs quotes where YAML would take it for something else"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	default:
		return "a whole number"
	}
}

// step is an object or a list on the way to a value.
type step struct {
	list  bool
	index int
	key   string
	named bool // the key is read, its value not yet
}

// find returns the path and the text of the first value that found accepts, by
// the token that it begins with, by where that ends, and by the way there.
func find(document []byte, found func(json.Token, int64, []step) bool) (at, is string) {
	tokens := json.NewDecoder(bytes.NewReader(document))
	tokens.UseNumber()
	var way []step
	for {
		t, err := tokens.Token()
		if err != nil {
			return "a value", "unreadable"
		}
		if t == json.Delim('}') || t == json.Delim(']') {
			way = way[:len(way)-1]
			continue
		}
		if n := len(way); n > 0 {
			if last := &way[n-1]; last.list {
				last.index++
			} else if last.named = !last.named; last.named {
				last.key, _ = t.(string)
				continue
			}
		}
		if found(t, tokens.InputOffset(), way) {
			return path(way), literal(t)
		}
		if t == json.Delim('{') || t == json.Delim('[') {
			way = append(way, step{list: t == json.Delim('['), index: -1})
		}
	}
}

// amount reports whether the way leads to one of a Node's resources.
func amount(way []step) bool {
	return len(way) == 3 && way[0].key == "status" && (way[1].key == "capacity" || way[1].key == "allocatable")
}

// countable reports whether t is an amount, or null, which is none.
func countable(t json.Token) bool {
	_, err := resource.ParseQuantity(fmt.Sprint(t))
	return err == nil || t == nil
}

func path(way []step) string {
	var b strings.Builder
	for _, s := range way {
		switch {
		case s.list:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case b.Len() > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	if b.Len() == 0 {
		return "it"
	}
	return b.String()
}

func literal(t json.Token) string {
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return "a list"
		}
		return "an object"
	case string:
		return strconv.Quote(t)
	default:
		return fmt.Sprint(t)
	}
}
