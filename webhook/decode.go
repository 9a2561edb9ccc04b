package webhook

import (
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/nodewarden/nodewarden/contract"
)

// decoder turns the body of an admission review into a contract.Write without
// decoding the two Nodes in it. It reads over the body once, remembers where
// the few parts stand that the rules look at, and decodes those. What API
// servers do not produce it leaves to typed decoding, so that the outcome is
// always the one of typed decoding.
//
// A decoder is reused; see newDecoder and release.
type decoder struct {
	// labels says whether the policy looks at labels.
	labels bool
	// turn says that takeTurn has been called.
	turn bool

	body, part    cursor
	review        review
	before, after node
	groups        []string
	// entries are the conditions of before and after, reused.
	entries [2][]contract.Condition
	managed []entry
}

var decoders sync.Pool

// newDecoder returns a decoder to be released after use.
func newDecoder(labels bool) *decoder {
	d, ok := decoders.Get().(*decoder)
	if !ok {
		d = new(decoder)
	}
	d.labels = labels
	return d
}

// release ends the use of d and of the review that it returned.
func (d *decoder) release() {
	d.endTurn()
	d.reset()
	d.body.release()
	d.part.release()
	d.groups, d.managed = kept(d.groups), kept(d.managed)
	for i := range d.entries {
		d.entries[i] = kept(d.entries[i])
	}
	decoders.Put(d)
}

// kept is list, unless it has grown so long that the next review should not pay
// for it.
func kept[T any](list []T) []T {
	if cap(list) > maxKeptEntries {
		return nil
	}
	return list
}

// maxKeptEntries bounds the lists kept for the next review.
const maxKeptEntries = 4096

func (d *decoder) reset() {
	d.review = review{}
	d.before, d.after = node{}, node{}
	clear(d.managed)
	clear(d.groups)
	d.groups = d.groups[:0]
	for i := range d.entries {
		clear(d.entries[i])
		d.entries[i] = d.entries[i][:0]
	}
}

// decode reads one admission review. The result is valid until release; body
// must not change until then.
func (d *decoder) decode(body []byte) (*review, error) {
	d.reset()
	if d.quick(body) != nil {
		d.reset()
		if err := d.typed(body); err != nil {
			return nil, err
		}
	}
	return &d.review, nil
}

// quick reads a regular review. Any error means: read it the typed way.
func (d *decoder) quick(body []byte) error {
	if err := d.readReview(body); err != nil {
		return err
	}
	if err := d.review.validate(); err != nil {
		return err
	}
	if !d.review.watched() {
		return nil
	}
	return d.readWrite()
}

func (d *decoder) readReview(body []byte) error {
	c := &d.body
	c.start(body)
	var kind, apiVersion []byte
	seen := false
	err := c.members(func(name []byte) error {
		switch string(name) {
		case "kind":
			return c.take(&kind)
		case "apiVersion":
			return c.take(&apiVersion)
		case "request":
			if seen {
				return errIrregular
			}
			seen = true
			d.review.hasRequest = c.dec.PeekKind() == jsontext.KindBeginObject
			return d.readRequest()
		}
		return c.skip()
	})
	if err != nil {
		return err
	}
	if _, err := c.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errIrregular
	}
	return errors.Join(set(&d.review.kind, kind), set(&d.review.apiVersion, apiVersion))
}

// set stores the string that raw quotes.
func set(s *string, raw []byte) (err error) {
	*s, err = text(raw)
	return err
}

func (d *decoder) readRequest() error {
	c, e := &d.body, &d.review.envelope
	var uid, subresource, operation, dryRun, user, resource []byte
	err := c.members(func(name []byte) error {
		switch string(name) {
		case "uid":
			return c.take(&uid)
		case "resource":
			return c.take(&resource)
		case "subResource":
			return c.take(&subresource)
		case "operation":
			return c.take(&operation)
		case "userInfo":
			return c.take(&user)
		case "dryRun":
			return c.take(&dryRun)
		case "object":
			return d.readNode(&d.after)
		case "oldObject":
			return d.readNode(&d.before)
		}
		return c.skip()
	})
	if err != nil {
		return err
	}
	if e.dryRun, err = boolean(dryRun); err != nil {
		return err
	}
	return errors.Join(set(&e.uid, uid), set(&e.subresource, subresource), set(&e.operation, operation),
		d.readResource(resource), d.readUser(user))
}

func boolean(raw []byte) (bool, error) {
	switch {
	case isNull(raw), raw[0] == 'f':
		return false, nil
	case raw[0] == 't':
		return true, nil
	}
	return false, errIrregular
}

func (d *decoder) readResource(raw []byte) error {
	if raw == nil {
		return nil
	}
	c, e := &d.part, &d.review.envelope
	c.start(raw)
	var group, version, resource []byte
	err := c.members(func(name []byte) error {
		switch string(name) {
		case "group":
			return c.take(&group)
		case "version":
			return c.take(&version)
		case "resource":
			return c.take(&resource)
		}
		return c.skip()
	})
	if err != nil {
		return err
	}
	return errors.Join(set(&e.group, group), set(&e.version, version), set(&e.resource, resource))
}

func (d *decoder) readUser(raw []byte) error {
	if raw == nil {
		return nil
	}
	c := &d.part
	c.start(raw)
	var username []byte
	seen := false
	err := c.members(func(name []byte) error {
		switch string(name) {
		case "username":
			return c.take(&username)
		case "groups":
			if seen {
				return errIrregular
			}
			seen = true
			return c.elements(d.readGroup)
		}
		return c.skip()
	})
	if err != nil {
		return err
	}
	d.review.user.Groups = d.groups
	return set(&d.review.user.Name, username)
}

func (d *decoder) readGroup() error {
	raw, err := d.part.value()
	if err != nil {
		return err
	}
	if len(d.groups) == maxGroups {
		return errIrregular
	}
	group, err := text(raw)
	d.groups = append(d.groups, group)
	return err
}

// maxGroups is more than any user is in.
const maxGroups = 4096
