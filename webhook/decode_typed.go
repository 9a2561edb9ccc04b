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
