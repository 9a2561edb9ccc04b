package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// question is one write, and what was noticed on reading it.
type question struct {
	write contract.Write
	// elsewhere says that the write is to nothing that the contract is about.
	elsewhere bool
	notes     []string
}

// maxInput bounds what is read. An API server accepts requests of 3 MiB.
const maxInput = 16 << 20

// read reads the write that the command line is about.
func (f checkFlags) read(in io.Reader, now time.Time) (question, error) {
	if f.after != "" {
		return f.fromFiles(now)
	}
	if f.before != "" {
		return question{}, errors.New("--before without --after: name the Node after the write as well")
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return question{}, fmt.Errorf("standard input: %w", err)
	}
	if len(text) > maxInput {
		return question{}, fmt.Errorf("standard input is longer than %d MiB: send one AdmissionReview; an API server accepts requests of 3 MiB", maxInput>>20)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return question{}, errors.New("nothing to judge: use --before and --after, or send an AdmissionReview on standard input")
	}
	return f.fromReview(text, now)
}

func (f checkFlags) fromFiles(now time.Time) (question, error) {
	after, notes, err := nodeFile("--after", f.after)
	if err != nil {
		return question{}, err
	}
	var before *corev1.Node
	if f.before != "" {
		var more []string
		if before, more, err = nodeFile("--before", f.before); err != nil {
			return question{}, err
		}
		notes = append(notes, more...)
		if before.Name != after.Name {
			return question{}, fmt.Errorf("--before is Node %q and --after Node %q: want the same Node", before.Name, after.Name)
		}
	}
	q := question{write: contract.Between(before, after, f.who(contract.User{})), notes: notes}
	if f.now != "" || edited(before, after) {
		q.arrives(now)
	}
	return q, nil
}

// arrives says when the write reaches the API server, whatever managedFields say.
func (q *question) arrives(now time.Time) {
	q.write.Now = contract.Instant(now)
	q.notes = append(q.notes, "the write is taken to reach the API server at "+q.write.Now.Format(time.RFC3339))
}

// edited reports whether after was made by hand: an API server would have added
// this write's own entry to the managedFields of before.
func edited(before, after *corev1.Node) bool {
	switch {
	case before == nil:
		return false // entries there are can only be those of the creation
	case len(after.ManagedFields) == 0:
		return len(before.ManagedFields) > 0
	}
	a, errA := json.Marshal(before.ManagedFields)
	b, errB := json.Marshal(after.ManagedFields)
	return errA == nil && errB == nil && string(a) == string(b)
}

func nodeFile(flag, name string) (*corev1.Node, []string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	node := &corev1.Node{}
	notes, err := decode(text, node)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %s is no Node: %w", flag, name, err)
	}
	if node.Kind != "Node" || node.APIVersion != "v1" {
		return nil, nil, fmt.Errorf("%s: %s is apiVersion %q, kind %q: want one v1 Node, as kubectl get node NAME -o yaml prints it", flag, name, node.APIVersion, node.Kind)
	}
	if node.Name == "" {
		return nil, nil, fmt.Errorf("%s: %s: metadata.name is missing", flag, name)
	}
	return node, notes, nil
}

func (f checkFlags) fromReview(text []byte, now time.Time) (question, error) {
	var review admissionv1.AdmissionReview
	notes, err := decode(text, &review)
	if err != nil {
		return question{}, fmt.Errorf("standard input is no AdmissionReview: %w", err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Request == nil {
		return question{}, fmt.Errorf("standard input is apiVersion %q, kind %q: want an AdmissionReview of %s with a request", review.APIVersion, review.Kind, admissionv1.SchemeGroupVersion)
	}
	r := review.Request
	if r.Resource.Resource == "" {
		return question{}, fmt.Errorf("standard input: request.resource.resource %q, request.operation %q: want both, as an API server sends them", r.Resource.Resource, r.Operation)
	}
	if known := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}; !slices.Contains(known, r.Operation) {
		return question{}, fmt.Errorf("standard input: request.operation %q: want one of %q", r.Operation, known)
	}
	if !aboutReady(r) {
		return question{
			write: contract.Write{Node: r.Name, User: f.who(contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups})}, elsewhere: true,
			notes: append(notes, fmt.Sprintf("%s of %s is outside the contract: it judges UPDATE of nodes/status and CREATE of nodes", r.Operation, resourceOf(r))),
		}, nil
	}
	after, err := nodeIn("request.object", r.Name, r.Object.Raw)
	if err != nil {
		return question{}, err
	}
	var before *corev1.Node
	if r.Operation == admissionv1.Update {
		if before, err = nodeIn("request.oldObject", r.Name, r.OldObject.Raw); err != nil {
			return question{}, err
		}
	}
	q := question{write: contract.Between(before, after, f.who(contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups})), notes: notes}
	if f.now != "" {
		q.arrives(now)
	}
	return q, nil
}

func aboutReady(r *admissionv1.AdmissionRequest) bool {
	what := resourceOf(r)
	return r.Operation == admissionv1.Update && what == "v1 nodes/status" || r.Operation == admissionv1.Create && what == "v1 nodes"
}

func resourceOf(r *admissionv1.AdmissionRequest) string {
	what := strings.TrimPrefix(r.Resource.Group+"/"+r.Resource.Version, "/") + " " + r.Resource.Resource
	if r.SubResource != "" {
		what += "/" + r.SubResource
	}
	return what
}

func nodeIn(field, name string, raw []byte) (*corev1.Node, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("%s is missing", field)
	}
	node := &corev1.Node{}
	if _, err := decode(raw, node); err != nil {
		return nil, fmt.Errorf("%s is no Node: %w", field, err)
	}
	if node.Kind != "Node" || node.APIVersion != "v1" {
		return nil, fmt.Errorf("%s is apiVersion %q, kind %q: want a v1 Node", field, node.APIVersion, node.Kind)
	}
	if node.Name != name && name != "" { // a creation may leave the name to the API server
		return nil, fmt.Errorf("%s is Node %q and request.name %q: want the same", field, node.Name, name)
	}
	return node, nil
}

const serviceAccountUser = "system:serviceaccount:"

// who is the writer: the flags', else the one given. Like an API server that is
// asked to impersonate a service account, it adds the groups that one has.
func (f checkFlags) who(u contract.User) contract.User {
	if f.user != "" {
		u = contract.User{Name: f.user}
	}
	u.Groups = slices.Concat(u.Groups, f.groups)
	if account, ok := strings.CutPrefix(f.user, serviceAccountUser); ok && len(f.groups) == 0 {
		namespace, _, _ := strings.Cut(account, ":")
		u.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	}
	return u
}
