package webhook

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/nodewarden/nodewarden/contract"
)

// errIrregular marks JSON that API servers do not produce and that the quick
// reading leaves to the typed one: repeated fields, unexpected types, invalid
// UTF-8.
var errIrregular = errors.New("irregular JSON")

// lenient lets names repeat in objects that nobody looks into. Checking them
// all would cost more than everything else together.
var lenient = jsontext.AllowDuplicateNames(true)

// cursor walks over JSON text without copying it. Raw values that it returns
// are parts of the text.
type cursor struct {
	dec  jsontext.Decoder
	src  bytes.Buffer
	text []byte
	// unquoted holds the last name that had escapes.
	unquoted []byte
}

func (c *cursor) start(text []byte) {
	c.text = text
	c.src = *bytes.NewBuffer(text)
	c.dec.Reset(&c.src, lenient)
}

// release lets go of the text.
func (c *cursor) release() {
	c.start(nil)
	if cap(c.unquoted) > maxKept {
		c.unquoted = nil
	}
}

// value returns the next value as it stands in the text.
func (c *cursor) value() ([]byte, error) {
	v, err := c.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(c.dec.InputOffset())
	return c.text[end-len(v) : end], nil
}

// take stores the next value in raw, which must be empty: where a field
// repeats, typed decoding merges, and we leave it to that.
func (c *cursor) take(raw *[]byte) error {
	if *raw != nil {
		return errIrregular
	}
	var err error
	*raw, err = c.value()
	return err
}

// skip reads over the next value.
func (c *cursor) skip() error {
	_, err := c.dec.ReadValue()
	return err
}

// members calls see with the name of each member of the next value, an object
// or null; see reads the member's value.
func (c *cursor) members(see func(name []byte) error) error {
	switch c.dec.PeekKind() {
	case jsontext.KindNull:
		return c.skip()
	case jsontext.KindBeginObject:
	default:
		return errIrregular
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for c.dec.PeekKind() == jsontext.KindString {
		quoted, err := c.dec.ReadValue()
		if err != nil {
			return err
		}
		name, err := c.name(quoted)
		if err != nil {
			return err
		}
		if err := see(name); err != nil {
			return err
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

// elements calls see before each element of the next value, an array or null;
// see reads the element.
func (c *cursor) elements(see func() error) error {
	switch c.dec.PeekKind() {
	case jsontext.KindNull:
		return c.skip()
	case jsontext.KindBeginArray:
	default:
		return errIrregular
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return err
	}
	for next := c.dec.PeekKind(); next != jsontext.KindEndArray && next != jsontext.KindInvalid; next = c.dec.PeekKind() {
		if err := see(); err != nil {
			return err
		}
	}
	_, err := c.dec.ReadToken()
	return err
}

// name returns a member's name without its quotes, good until the next one.
func (c *cursor) name(quoted []byte) ([]byte, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	var err error
	c.unquoted, err = jsontext.AppendUnquote(c.unquoted[:0], quoted)
	return c.unquoted, err
}

// isNull says whether a value is absent or null, which typed decoding takes
// for the same.
func isNull(raw []byte) bool { return len(raw) == 0 || raw[0] == 'n' }

// text returns the string that raw quotes; null is the empty string.
func text(raw []byte) (string, error) {
	switch {
	case isNull(raw):
		return "", nil
	case raw[0] != '"':
		return "", errIrregular
	case bytes.IndexByte(raw, '\\') < 0:
		return known(raw[1 : len(raw)-1]), nil
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	return string(s), err
}

// known is string(b), without an allocation for what stands in nearly every
// review.
func known(b []byte) string {
	if s, ok := words[string(b)]; ok {
		return s
	}
	return string(b)
}

var words = func() map[string]string {
	m := map[string]string{}
	for _, w := range []string{
		"", "v1", "nodes", "status", "UPDATE", "CREATE", reviewKind, reviewVersion,
		"system:nodes", "system:authenticated", "system:serviceaccounts", "system:masters",
	} {
		m[w] = w
	}
	return m
}()

// instant reads a time as Kubernetes writes them; null is the zero time.
func instant(raw []byte) (time.Time, error) {
	if isNull(raw) {
		return time.Time{}, nil
	}
	if raw[0] != '"' {
		return time.Time{}, errIrregular
	}
	var t time.Time
	if t.UnmarshalText(raw[1:len(raw)-1]) != nil {
		return farInstant(raw[1 : len(raw)-1])
	}
	return contract.Instant(t), nil
}

// farInstant reads the instants outside the years 0 to 9999 as an API server
// prints them when an offset carried them there: typed decoding knows none, but
// a rule has a word to say about them.
func farInstant(text []byte) (time.Time, error) {
	sign, digits := 1, text
	if len(text) > 0 && text[0] == '-' {
		sign, digits = -1, text[1:]
	}
	year, rest, ok := bytes.Cut(digits, []byte("-"))
	if !ok || len(year) < 3 || len(year) > 6 || sign > 0 && len(year) < 5 {
		return time.Time{}, errIrregular
	}
	n, err := strconv.ParseUint(string(year), 10, 32)
	if err != nil {
		return time.Time{}, errIrregular
	}
	// The year 2000 is a leap year: every day of any year is there.
	t, err := time.Parse(time.RFC3339, "2000-"+string(rest))
	if err != nil {
		return time.Time{}, errIrregular
	}
	return time.Date(sign*int(n), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, t.Location()).UTC(), nil
}
