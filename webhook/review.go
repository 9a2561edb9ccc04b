package webhook

import (
	"errors"
	"fmt"

	"github.com/nodewarden/nodewarden/contract"
)

const (
	reviewKind    = "AdmissionReview"
	reviewVersion = "admission.k8s.io/v1"
)

// review is one admission review, reduced to what a verdict needs.
type review struct {
	envelope
	// write is what the review asks about; empty unless watched.
	write contract.Write
}

// envelope is a review without the objects in it.
type envelope struct {
	kind, apiVersion string
	hasRequest       bool
	uid              string
	group, version   string
	resource         string
	subresource      string
	operation        string
	dryRun           bool
	user             contract.User
}

// validate says why the envelope cannot be answered.
func (e *envelope) validate() error {
	switch {
	case e.kind != reviewKind || e.apiVersion != reviewVersion:
		return fmt.Errorf("this is apiVersion %.64q, kind %.64q; only %s %s is understood: list v1 first under admissionReviewVersions",
			e.apiVersion, e.kind, reviewVersion, reviewKind)
	case !e.hasRequest:
		return errors.New("the review holds no request")
	case e.uid == "":
		return errors.New("request.uid is missing")
	}
	return nil
}

// watched says whether the contract has rules for this kind of write at all:
// an update of nodes/status, or the creation of a Node. Package contract then
// decides whether the write itself matters.
func (e *envelope) watched() bool {
	return e.group == "" && e.version == "v1" && e.resource == "nodes" && (e.updates() || e.creates())
}

func (e *envelope) updates() bool {
	return e.operation == string(contract.Update) && e.subresource == "status"
}
func (e *envelope) creates() bool {
	return e.operation == string(contract.Create) && e.subresource == ""
}

// target names what the review is about, for a message.
func (e *envelope) target() string {
	t := e.operation + " of " + e.resource
	if e.subresource != "" {
		t += "/" + e.subresource
	}
	return bounded(t, 128)
}
