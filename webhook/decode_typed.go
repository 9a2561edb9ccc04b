package webhook

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nodewarden/nodewarden/contract"
)

// typed reads a review the ordinary way, at ten times the cost. It is the
// measure of what quick must return, and says what is wrong with a review
// that cannot be read.
func (d *decoder) typed(body []byte) error {
	if crowded(body) {
		return errCrowded
	}
	d.takeTurn()
	var in admissionv1.AdmissionReview
	if err := utiljson.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("the body is not an %s: %w", reviewKind, err)
	}
	d.review.envelope = envelopeOf(&in)
	if err := d.review.validate(); err != nil {
		return err
	}
	if !d.review.watched() {
		return nil
	}
	write, err := writeOf(in.Request)
	if err != nil {
		return err
	}
	if !d.labels {
		write.Labels = nil
	}
	d.review.write = write
	return nil
}

func envelopeOf(in *admissionv1.AdmissionReview) envelope {
	e := envelope{kind: in.Kind, apiVersion: in.APIVersion, hasRequest: in.Request != nil}
	r := in.Request
	if r == nil {
		return e
	}
	e.uid, e.subresource, e.operation = string(r.UID), r.SubResource, string(r.Operation)
	e.group, e.version, e.resource = r.Resource.Group, r.Resource.Version, r.Resource.Resource
	e.dryRun = r.DryRun != nil && *r.DryRun
	e.user = contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups}
	return e
}

func writeOf(r *admissionv1.AdmissionRequest) (contract.Write, error) {
	user := contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups}
	after, err := nodeFrom("request.object", r.Object.Raw)
	if err != nil {
		return contract.Write{}, err
	}
	if r.Operation == admissionv1.Create {
		return contract.Between(nil, after, user), nil
	}
	before, err := nodeFrom("request.oldObject", r.OldObject.Raw)
	if err != nil {
		return contract.Write{}, err
	}
	return contract.Between(before, after, user), nil
}

func nodeFrom(field string, raw []byte) (*corev1.Node, error) {
	if len(raw) == 0 {
		return nil, errors.New(field + " is missing")
	}
	node := &corev1.Node{}
	if err := utiljson.Unmarshal(raw, node); err != nil {
		return nil, fmt.Errorf("%s is not a Node: %w", field, err)
	}
	return node, nil
}

// Typed decoding can make a hundred bytes of one. So of more than fewBytes it is
// done in turn, and never of more than maxValues values: 3,000 conditions in both
// Nodes are less.
const (
	fewBytes  = 4 << 10
	maxValues = 50_000
	maxTurns  = 2
)

var errCrowded = fmt.Errorf("the body holds more than %d values in a form that API servers do not send", maxValues)

// turns are taken by the decoders that hold much of what they decoded.
var turns = make(chan struct{}, maxTurns)

// takeTurn waits until few other decoders hold much, and lasts until endTurn.
func (d *decoder) takeTurn() {
	if !d.turn {
		turns <- struct{}{}
		d.turn = true
	}
}

func (d *decoder) endTurn() {
	if d.turn {
		leave(turns)
		d.turn = false
	}
}

// crowded says whether text, if it is JSON, holds more than maxValues values.
func crowded(text []byte) bool {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n > maxValues
}
