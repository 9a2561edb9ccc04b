package webhook

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nodewarden/nodewarden/contract"
)

// node is a Node as it stands in the review: the parts that the rules look at,
// undecoded, nil where absent.
type node struct {
	present                bool
	hasMetadata, hasStatus bool

	name, labels, annotations, owners, finalizers, managed []byte
	conditions                                             []byte
}

func (d *decoder) readNode(n *node) error {
	c := &d.body
	if n.present {
		return errIrregular
	}
	if c.dec.PeekKind() == jsontext.KindNull {
		return c.skip()
	}
	n.present = true
	return c.members(func(name []byte) error {
		switch string(name) {
		case "metadata":
			if n.hasMetadata {
				return errIrregular
			}
			n.hasMetadata = true
			return d.readMetadata(n)
		case "status":
			if n.hasStatus {
				return errIrregular
			}
			n.hasStatus = true
			return d.readStatus(n)
		}
		return c.skip()
	})
}

func (d *decoder) readMetadata(n *node) error {
	c := &d.body
	return c.members(func(name []byte) error {
		switch string(name) {
		case "name":
			return c.take(&n.name)
		case "labels":
			return c.take(&n.labels)
		case "annotations":
			return c.take(&n.annotations)
		case "ownerReferences":
			return c.take(&n.owners)
		case "finalizers":
			return c.take(&n.finalizers)
		case "managedFields":
			return c.take(&n.managed)
		}
		return c.skip()
	})
}

func (d *decoder) readStatus(n *node) error {
	c := &d.body
	return c.members(func(name []byte) error {
		if string(name) == "conditions" {
			return c.take(&n.conditions)
		}
		return c.skip()
	})
}

// readWrite makes the Write of the parts of both Nodes, as contract.Between
// does of two typed ones.
func (d *decoder) readWrite() (err error) {
	w := &d.review.write
	w.Verb, w.User = contract.Verb(d.review.operation), d.review.user
	if !d.after.present {
		return errIrregular
	}
	if w.Node, err = text(d.after.name); err != nil {
		return err
	}
	if w.After, err = d.readConditions(d.after.conditions, &d.entries[1]); err != nil {
		return err
	}
	if _, w.Now, err = d.readManaged(d.after.managed); err != nil {
		return err
	}
	labelled := &d.after
	if d.review.updates() {
		labelled = &d.before
		if err := d.readBefore(); err != nil {
			return err
		}
	}
	if d.labels {
		w.Labels, err = decoded[map[string]string](d, labelled.labels)
	}
	return err
}

func (d *decoder) readBefore() (err error) {
	w := &d.review.write
	if !d.before.present {
		return errIrregular
	}
	if w.Before, err = d.readConditions(d.before.conditions, &d.entries[0]); err != nil {
		return err
	}
	if w.Spoke, _, err = d.readManaged(d.before.managed); err != nil {
		return err
	}
	was, is := &d.before, &d.after
	if w.Touched.Labels, err = differ[map[string]string](d, was.labels, is.labels); err != nil {
		return err
	}
	if w.Touched.Annotations, err = differ[map[string]string](d, was.annotations, is.annotations); err != nil {
		return err
	}
	if w.Touched.OwnerReferences, err = differ[[]metav1.OwnerReference](d, was.owners, is.owners); err != nil {
		return err
	}
	w.Touched.Finalizers, err = differ[[]string](d, was.finalizers, is.finalizers)
	return err
}

// differ says whether two undecoded values of type T mean different things.
// Nearly always they are the same bytes, and nothing is decoded.
func differ[T any](d *decoder, was, is []byte) (bool, error) {
	if bytes.Equal(was, is) {
		return false, nil
	}
	a, err := decoded[T](d, was)
	if err != nil {
		return false, err
	}
	b, err := decoded[T](d, is)
	return !equality.Semantic.DeepEqual(a, b), err
}

func decoded[T any](d *decoder, raw []byte) (v T, err error) {
	if len(raw) > fewBytes {
		if crowded(raw) {
			return v, errIrregular
		}
		d.takeTurn()
	}
	if raw != nil {
		err = utiljson.Unmarshal(raw, &v)
	}
	return v, err
}

// readConditions decodes status.conditions into entries.
func (d *decoder) readConditions(raw []byte, entries *[]contract.Condition) ([]contract.Condition, error) {
	if raw == nil {
		return nil, nil
	}
	c := &d.part
	c.start(raw)
	whole := whole{raw: raw, text: string(raw)}
	most := len(raw)/leastCondition + 1
	*entries = slices.Grow(*entries, most)
	err := c.elements(func() error {
		if len(*entries) == most {
			return errIrregular
		}
		condition, err := d.readCondition(whole)
		*entries = append(*entries, condition)
		return err
	})
	return *entries, err
}

// leastCondition is how many bytes an API server needs at least for a condition,
// all fields empty. So the decoded ones cannot take much more than the bytes did.
const leastCondition = 64

func (d *decoder) readCondition(from whole) (out contract.Condition, err error) {
	c := &d.part
	var typ, status, reason, message, heartbeat, transition []byte
	err = c.members(func(name []byte) error {
		switch string(name) {
		case "type":
			return c.take(&typ)
		case "status":
			return c.take(&status)
		case "reason":
			return c.take(&reason)
		case "message":
			return c.take(&message)
		case "lastHeartbeatTime":
			return c.take(&heartbeat)
		case "lastTransitionTime":
			return c.take(&transition)
		}
		return c.skip()
	})
	if err != nil {
		return out, err
	}
	for _, f := range []struct {
		to  *string
		raw []byte
	}{{&out.Type, typ}, {&out.Status, status}, {&out.Reason, reason}, {&out.Message, message}} {
		if *f.to, err = from.string(f.raw); err != nil {
			return out, err
		}
	}
	if out.Heartbeat, err = instant(heartbeat); err != nil {
		return out, err
	}
	out.Transition, err = instant(transition)
	return out, err
}

// whole is a text as bytes and as one string, so that the strings in it are
// parts of that one instead of an allocation each.
type whole struct {
	raw  []byte
	text string
}

// string returns the string that part, a value in w.raw, quotes.
func (w whole) string(part []byte) (string, error) {
	if isNull(part) || part[0] != '"' || bytes.IndexByte(part, '\\') >= 0 {
		return text(part)
	}
	start := cap(w.raw) - cap(part) // both reach to the end of the same array
	return w.text[start+1 : start+len(part)-1], nil
}
