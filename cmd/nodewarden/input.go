package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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
	if f.emptyBefore {
		return question{}, errors.New(`--before "": want a file; without the flag the write is judged as a creation`)
	}
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
	return f.fromReview(text)
}

func (f checkFlags) fromFiles(now time.Time) (question, error) {
	after, err := nodeFile("--after", f.after)
	if err != nil {
		return question{}, err
	}
	var before *corev1.Node
	if f.before != "" {
		if before, err = nodeFile("--before", f.before); err != nil {
			return question{}, err
		}
		if before.Name != after.Name {
			return question{}, fmt.Errorf("--before is Node %q and --after Node %q: want the same Node", before.Name, after.Name)
		}
	}
	q := question{write: contract.Between(before, after, f.who(contract.User{}))}
	if len(after.ManagedFields) > 0 && (before == nil || sameManaged(before, after)) {
		// The file was edited; the API server would have added this write's own entry.
		q.write.Now = contract.Instant(now)
		q.notes = append(q.notes, "the write is taken to reach the API server at "+q.write.Now.Format(time.RFC3339))
	}
	return q, nil
}

func sameManaged(before, after *corev1.Node) bool {
	a, errA := json.Marshal(before.ManagedFields)
	b, errB := json.Marshal(after.ManagedFields)
	return errA == nil && errB == nil && string(a) == string(b)
}

func nodeFile(flag, name string) (*corev1.Node, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	node := &corev1.Node{}
	if err := parse(text, node); err != nil {
		return nil, fmt.Errorf("%s: %s is no Node: %w", flag, name, err)
	}
	if node.Kind != "Node" || node.APIVersion != "v1" {
		return nil, fmt.Errorf("%s: %s is apiVersion %q, kind %q: want one v1 Node, as kubectl get node NAME -o yaml prints it", flag, name, node.APIVersion, node.Kind)
	}
	return node, nil
}

var separator = regexp.MustCompile(`(?m)^---`)

// parse reads one YAML or JSON document. JSON is read as such: its escapes are
// not all YAML's.
func parse(text []byte, into any) error {
	if trimmed := bytes.TrimSpace(text); json.Valid(trimmed) {
		return decode(trimmed, into)
	}
	if i := separator.FindAllIndex(text, 2); len(i) > 1 || len(i) == 1 && len(bytes.TrimSpace(text[:i[0][0]])) > 0 {
		return errors.New("it holds several YAML documents: want one")
	}
	converted, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return decode(converted, into)
}

// decode is json.Unmarshal, whose errors name the field, not Go's types.
func decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("it is one %s: want an object", wrong.Value)
		}
		return fmt.Errorf("%s is a %s: want what kubectl prints there", wrong.Field, wrong.Value)
	}
	if wrong := (*time.ParseError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("a time is %q: want it as in 2026-01-31T10:00:00Z", strings.Trim(wrong.Value, `"`))
	}
	return err
}

func (f checkFlags) fromReview(text []byte) (question, error) {
	var review admissionv1.AdmissionReview
	if err := parse(text, &review); err != nil {
		return question{}, fmt.Errorf("standard input is no AdmissionReview: %w", err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Request == nil {
		return question{}, fmt.Errorf("standard input is apiVersion %q, kind %q: want an AdmissionReview of %s with a request", review.APIVersion, review.Kind, admissionv1.SchemeGroupVersion)
	}
	r := review.Request
	if r.Operation == "" || r.Resource.Resource == "" {
		return question{}, fmt.Errorf("standard input: request.operation %q, request.resource.resource %q: want both, as an API server sends them", r.Operation, r.Resource.Resource)
	}
	if !aboutReady(r) {
		return question{
			write: contract.Write{Node: r.Name, User: f.who(contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups})}, elsewhere: true,
			notes: []string{fmt.Sprintf("%s of %s is outside the contract: it judges UPDATE of nodes/status and CREATE of nodes", r.Operation, resourceOf(r))},
		}, nil
	}
	after, err := nodeIn("request.object", r.Object.Raw)
	if err != nil {
		return question{}, err
	}
	var before *corev1.Node
	if r.Operation == admissionv1.Update {
		if before, err = nodeIn("request.oldObject", r.OldObject.Raw); err != nil {
			return question{}, err
		}
	}
	return question{write: contract.Between(before, after, f.who(contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups}))}, nil
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

func nodeIn(field string, raw []byte) (*corev1.Node, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("%s is missing", field)
	}
	node := &corev1.Node{}
	if err := decode(raw, node); err != nil {
		return nil, fmt.Errorf("%s is no Node: %w", field, err)
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
