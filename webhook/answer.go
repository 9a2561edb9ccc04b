package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/contract"
)

// Keys of the audit annotations. The API server puts the name of the webhook
// before them.
const (
	// AnnotationRules lists the broken rules, whatever the policy does about them.
	AnnotationRules = "rules"
	// AnnotationWriterClass is the class of the writer.
	AnnotationWriterClass = "writer-class"
)

// answer is the decision on one review.
type answer struct {
	uid, node string
	class     contract.Class
	broken    []contract.Violation
	refused   bool
	warnings  []string
}

// encode writes a as an AdmissionReview.
func (a *answer) encode(to *bytes.Buffer) error {
	return json.NewEncoder(to).Encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: reviewKind, APIVersion: reviewVersion},
		Response: &admissionv1.AdmissionResponse{
			UID: types.UID(a.uid), Allowed: !a.refused, Result: a.status(), Warnings: a.warnings, AuditAnnotations: a.annotations(),
		},
	})
}

// status is the refusal as API clients read it; nil for what is admitted.
func (a *answer) status() *metav1.Status {
	if !a.refused {
		return nil
	}
	denied := contract.With(contract.Deny, a.broken)
	causes := make([]metav1.StatusCause, len(denied))
	for i, v := range denied {
		causes[i] = metav1.StatusCause{Type: metav1.CauseType(v.Rule), Field: v.Field, Message: v.Cause()}
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: contract.Message(denied), Details: &metav1.StatusDetails{Name: a.node, Kind: "nodes", Causes: causes},
	}
}

func (a *answer) annotations() map[string]string {
	if a.class == "" {
		return nil
	}
	if len(a.broken) == 0 {
		return unbroken[a.class]
	}
	return map[string]string{AnnotationWriterClass: string(a.class), AnnotationRules: ruleNames(a.broken)}
}

// unbroken holds the annotations of most answers, made once.
var unbroken = func() map[contract.Class]map[string]string {
	m := map[contract.Class]map[string]string{}
	for _, c := range contract.Classes() {
		m[c] = map[string]string{AnnotationWriterClass: string(c)}
	}
	return m
}()

// ruleNames lists the rules of broken in table order.
func ruleNames(broken []contract.Violation) string {
	return strings.Trim(contract.Bracket(broken), "[]")
}
