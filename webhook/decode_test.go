package webhook

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
)

// reference decodes a review as controller-runtime does it: the review, then
// each Node by the codec of the client scheme. Then contract.Between.
func reference(body []byte) (*review, error) {
	codec := json.NewSerializerWithOptions(json.DefaultMetaFactory, reviewScheme, reviewScheme, json.SerializerOptions{})
	in := &admissionv1.AdmissionReview{}
	if _, _, err := codec.Decode(body, nil, in); err != nil {
		return nil, err
	}
	out := &review{envelope: envelopeOf(in)}
	if err := out.validate(); err != nil || !out.watched() {
		return out, err
	}
	after, err := referenceNode(in.Request.Object)
	if err != nil {
		return nil, err
	}
	var before *corev1.Node
	if in.Request.Operation == admissionv1.Update {
		if before, err = referenceNode(in.Request.OldObject); err != nil {
			return nil, err
		}
	}
	out.write = contract.Between(before, after, contract.User{Name: in.Request.UserInfo.Username, Groups: in.Request.UserInfo.Groups})
	return out, nil
}

var reviewScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(admissionv1.AddToScheme(s), scheme.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

func referenceNode(r runtime.RawExtension) (*corev1.Node, error) {
	if len(r.Raw) == 0 {
		return nil, errors.New("there is no content to decode")
	}
	n := &corev1.Node{}
	codec := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	return n, runtime.DecodeInto(codec, r.Raw, n)
}

// decodesLikeTyped fails where typed decoding accepts body and decode sees
// another Write in it.
func decodesLikeTyped(t *testing.T, body []byte) {
	t.Helper()
	want, err := reference(body)
	d := newDecoder(true)
	defer d.release()
	got, gotErr := d.decode(body)
	if err != nil {
		return
	}
	if gotErr != nil {
		t.Fatalf("typed decoding accepts this, we do not: %v\n%s", gotErr, body)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(review{}, envelope{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("- typed, + ours:\n%s\n%s", diff, body)
	}
}

const (
	plainBefore = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"pool":"a"},"annotations":{"x":"y"},"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"u","controller":true}],"finalizers":["f"],` +
		`"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-03-01T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},"f:status":{}}}}},"subresource":"status"}]},` +
		`"spec":{"podCIDR":"10.0.0.0/24"},"status":{"capacity":{"cpu":"4"},"conditions":[{"type":"MemoryPressure","status":"False","lastHeartbeatTime":"2026-03-01T10:00:00Z","lastTransitionTime":"2026-03-01T08:00:00Z","reason":"Enough","message":"m"},` +
		`{"type":"Ready","status":"True","lastHeartbeatTime":"2026-03-01T10:00:00Z","lastTransitionTime":"2026-03-01T08:00:00Z","reason":"KubeletReady","message":"kubelet \u003cis\u003e \"posting\""}]}}`
	plainAfter = `{"metadata":{"name":"n1","labels":{"pool":"b"},"managedFields":[{"manager":"d","time":"2026-03-01T10:05:00Z","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}},"subresource":"status"}]},` +
		`"status":{"conditions":[{"type":"Ready","status":"Unknown","lastHeartbeatTime":"2026-03-01T10:00:00Z","lastTransitionTime":"2026-03-01T10:05:00+02:00","reason":"ProbeFailed","message":"é"}]}}`
)

// nodeOf is a Node with that metadata and status, for texts no encoder makes.
func nodeOf(metadata, status string) string {
	return fmt.Sprintf(`{"metadata":%s,"status":%s}`, metadata, status)
}

// oddNodes are Nodes in JSON that an API server would not send, or rarely.
var oddNodes = []string{
	`{}`, `null`, `[]`, `"x"`, `1`, ``, `{"metadata":null,"status":null}`, `{"metadata":{},"status":{"conditions":null}}`,
	nodeOf(`{"name":null,"labels":null,"annotations":{},"finalizers":[],"ownerReferences":null,"managedFields":null}`, `{"conditions":[null,{}]}`),
	nodeOf(`{"name":"a","name":"b"}`, `{}`), nodeOf(`{"name":"a","name":null}`, `{}`),
	nodeOf(`{"Name":"a"}`, `{"Conditions":[{"type":"Ready"}]}`),
	nodeOf(`{"n\u0061me":"a"}`, `{"c\u006fnditions":[{"t\u0079pe":"Re\u0061dy","status":"\ud83d\ude00"}]}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","reason":"A"},{"type":"X"}],"conditions":[{"status":"True"}]}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","type":"X","type":null}]}`),
	nodeOf(`{}`, `{"conditions":{"type":"Ready"}}`), nodeOf(`{}`, `{"conditions":["Ready"]}`), nodeOf(`{}`, `{"conditions":[{"type":1}]}`),
	`{"metadata":{"name":"a"},"metadata":{"labels":{"x":"y"}},"status":{},"status":{"conditions":[{"type":"Ready"}]}}`,
	nodeOf(`{"labels":{"a":"1","a":"2"}}`, `{}`), nodeOf(`{"labels":{"a":null}}`, `{}`), nodeOf(`{"labels":{"a":1}}`, `{}`), nodeOf(`{"labels":{"a":"1"},"labels":{"b":"2"}}`, `{}`),
	nodeOf(`{"labels":{"\u0070ool":"a"}}`, `{}`), nodeOf(`{"labels": {"pool" : "a"} }`, `{}`), nodeOf(`{"labels":[]}`, `{}`),
	nodeOf(`{"ownerReferences":[{"kind":"K","name":"o","apiVersion":"v1","uid":"u","controller":false}]}`, `{}`),
	nodeOf(`{"ownerReferences":[{}]}`, `{}`), nodeOf(`{"finalizers":[null]}`, `{}`), nodeOf(`{"finalizers":["f","g"]}`, `{}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":null,"lastTransitionTime":"0001-01-01T00:00:00Z"}]}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":"2026-03-01T10:00:00.999Z","lastTransitionTime":"9999-12-31T23:59:59-05:00"}]}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":"2026-03-01T1:00:00Z","lastTransitionTime":"0000-01-01T00:00:00+23:59"}]}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":"2026-03-01T10:00:00,5Z"}]}`), nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":"2026-03-01T10:00:00+24:00"}]}`),
	nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":"2026\u002d03-01T10:00:00Z"}]}`), nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":1}]}`), nodeOf(`{}`, `{"conditions":[{"type":"Ready","lastHeartbeatTime":""}]}`),
	nodeOf(`{}`, "{\"conditions\":[{\"type\":\"Ready\",\"message\":\"\xff\xfe\",\"reason\":\"\\ud800\"}]}"), nodeOf("{\"labels\":{\"\xff\":\"\xff\"}}", `{}`),
	nodeOf(`{}`, "{\"conditions\":[{\"type\":\"Ready\",\"message\":\"a\x00b\"}]}"), nodeOf(`{}`, `{"conditions":[{"type":"Ready","message":"tab\tnew\nline\u0000"}]} `),
	nodeOf(`{"managedFields":[null,{},{"subresource":"status"},{"subresource":"status","time":null,"fieldsV1":null}]}`, `{}`),
	nodeOf(`{"managedFields":{"subresource":"status"}}`, `{}`), nodeOf(`{"managedFields":[{"time":"x"}]}`, `{}`), nodeOf(`{"managedFields":[{"time":"2026-03-01T10:00:00Z","time":null,"subresource":"status"}]}`, `{}`),
}

// oddFields are fieldsV1 values around the path that the rules follow.
var oddFields = []string{
	`null`, `{}`, `[]`, `"f:status"`, `1`, `{"f:status":null}`, `{"f:status":{"f:conditions":null}}`, `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":null}}}`,
	`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{}}}}`, `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":[]}}}`,
	`{"f:status":{"f:conditions":{"k:{\u0022type\u0022:\"\u0052eady\"}":{"f:lastHeartbeatTime":null}}}}`, `{"f:status":{"f:conditions":{"k:{\"type\":\"\u0052eady\"}":{"f:l\u0061stHeartbeatTime":{}}}}}`,
	`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}},"f:status":{}}`, `{"f:status":{},"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},"f:lastHeartbeatTime":1}}}}`,
	`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}},"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}`, `{"F:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{}}}}`,
	"{\"f:status\":{\"f:conditions\":{\"k:{\\\"type\\\":\\\"Ready\\\"}\":{\"\xff\":{}}}}}", `{"f:status":{"f:conditions":{"k:{\"type\":\"ReadySoon\"}":{"f:lastHeartbeatTime":{}}}}}`,
}

func managedBy(fields string) string {
	return nodeOf(`{"name":"n1","managedFields":[{"subresource":"status","time":"2026-03-01T10:00:00Z","fieldsV1":`+fields+`},{"subresource":"","time":"2026-03-01T11:00:00Z","fieldsV1":`+fields+`},{"subresource":"st\u0061tus","time":"2026-03-01T09:00:00Z","fieldsV1":`+fields+`}]}`, `{}`)
}

// nodeTexts are Nodes as JSON, plain and odd.
func nodeTexts() []string {
	texts := append([]string{plainBefore, plainAfter}, oddNodes...)
	for _, f := range oddFields {
		texts = append(texts, managedBy(f))
	}
	entry := `{"subresource":"status","time":"2026-03-01T10:00:00Z","fieldsV1":` + oddFields[8] + `}`
	for _, others := range []int{contract.MaxManaged - 1, contract.MaxManaged} {
		texts = append(texts, nodeOf(`{"managedFields":[`+strings.Repeat("null,", others)+entry+`]}`, `{}`))
	}
	return texts
}

// around is the review of an update, around two Nodes in JSON.
func around(before, after string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","kind":{"group":"","version":"v1","kind":"Node"},"resource":{"group":"","version":"v1","resource":"nodes"},"subResource":"status","name":"n1",` +
		`"operation":"UPDATE","userInfo":{"username":"det","uid":"1","groups":["system:authenticated","g"],"extra":{"k":["v"]}},"object":` + after + `,"oldObject":` + before + `,"dryRun":true,"options":{"kind":"UpdateOptions"}}}`
}

// oddReviews are reviews whose envelope is unusual.
func oddReviews() []string {
	plain := around(plainBefore, plainAfter)
	odd := []string{``, `null`, `{}`, `[]`, plain + ` `, plain + `{}`, ` ` + plain, plain[:len(plain)-1]}
	for _, r := range [][2]string{
		{`"UPDATE"`, `"CREATE"`}, {`"UPDATE"`, `"DELETE"`}, {`"UPDATE"`, `"CONNECT"`}, {`"UPDATE"`, `null`}, {`"UPDATE"`, `"update"`}, {`"UPDATE"`, `1`},
		{`"subResource":"status"`, `"subResource":""`}, {`"subResource":"status"`, `"subResource":"proxy"`}, {`"subResource":"status"`, `"subResource":"status","subResource":""`},
		{`"operation":"UPDATE"`, `"operation":"CREATE","subResource":""`}, {`"subResource":"status","name":"n1","operation":"UPDATE"`, `"operation":"CREATE"`},
		{`"resource":"nodes"`, `"resource":"pods"`}, {`"resource":{`, `"resource":null,"x":{`}, {`"resource":{`, `"resource":{"group":"apps"},"resource":{`}, {`"version":"v1","resource"`, `"version":"v2","resource"`},
		{`admission.k8s.io/v1`, `admission.k8s.io/v1beta1`}, {`AdmissionReview`, `Review`}, {`"kind":"AdmissionReview",`, ``}, {`"request":`, `"request":null,"request":`}, {`"request":`, `"Request":`}, {`"request":{`, `"request":{"uid":"x"},"request":{`},
		{`"uid":"u-1",`, ``}, {`"uid":"u-1"`, `"uid":null`}, {`"uid":"u-1"`, `"uid":7`}, {`"uid":"u-1"`, `"uid":"\u0075"`}, {`"dryRun":true`, `"dryRun":null`}, {`"dryRun":true`, `"dryRun":"true"`}, {`"dryRun":true`, `"dryRun":true,"dryRun":false`},
		{`"userInfo":{`, `"userInfo":null,"x":{`}, {`"groups":[`, `"groups":null,"x":[`}, {`"g"]`, `null,"\u0067"]`}, {`"g"]`, `1]`}, {`"groups":[`, `"groups":["a"],"groups":[`}, {`"username":"det"`, `"username":"d\u0065t"`}, {`"username":"det"`, `"username":null`},
		{`"dryRun":true`, `"oldObject":null`}, {`"dryRun":true`, `"oldObject":{"metadata":{"name":"n2"}}`}, {`"dryRun":true`, `"object":{}`},
	} {
		odd = append(odd, strings.Replace(plain, r[0], r[1], 1))
	}
	return odd
}

// bigReview is a review with two Nodes of 40 KB.
func bigReview() []byte {
	n := reviews.Node("node-7.region-1.example.org")
	return reviews.Body(reviews.Update(n, reviews.Detect(n, reviews.Heartbeat.Add(time.Minute)), reviews.Detector))
}

func TestDecodingReadsWhatTypedDecodingReads(t *testing.T) {
	texts := nodeTexts()
	for i, text := range texts {
		t.Run(fmt.Sprintf("node %d", i), func(t *testing.T) {
			for _, other := range []string{plainBefore, plainAfter, text, texts[(i+1)%len(texts)]} {
				decodesLikeTyped(t, []byte(around(other, text)))
				decodesLikeTyped(t, []byte(around(text, other)))
			}
		})
	}
	for i, body := range oddReviews() {
		t.Run(fmt.Sprintf("review %d", i), func(t *testing.T) { decodesLikeTyped(t, []byte(body)) })
	}
	t.Run("two big nodes", func(t *testing.T) { decodesLikeTyped(t, bigReview()) })
	t.Run("a big node is created", func(t *testing.T) {
		decodesLikeTyped(t, reviews.Body(reviews.Create(reviews.Node("n1"), reviews.Detector)))
	})
}

func TestWhatAnAPIServerSendsIsReadTheQuickWay(t *testing.T) {
	for name, body := range map[string][]byte{
		"two big nodes": bigReview(), "two small ones": []byte(around(plainBefore, plainAfter)),
		"a node is created": reviews.Body(reviews.Create(reviews.Node("n1"), reviews.Detector)),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder(true)
			defer d.release()
			if err := d.quick(body); err != nil {
				t.Errorf("fell back to typed decoding: %v", err)
			}
		})
	}
}

func TestLabelsAreReadOnlyWhereThePolicyLooksAtThem(t *testing.T) {
	for _, body := range []string{around(plainBefore, plainAfter), around(plainBefore, `{"status":{},"status":{}}`)} {
		d := newDecoder(false)
		got, err := d.decode([]byte(body))
		if err != nil || got.write.Labels != nil {
			t.Errorf("labels %v, error %v", got.write.Labels, err)
		}
		d.release()
	}
}

// FuzzDecodeReviews changes whole reviews.
func FuzzDecodeReviews(f *testing.F) {
	for _, body := range oddReviews() {
		f.Add([]byte(body))
	}
	for _, text := range nodeTexts() {
		f.Add([]byte(around(text, text)))
	}
	f.Fuzz(func(t *testing.T, body []byte) { decodesLikeTyped(t, body) })
}

// FuzzDecodeNodes changes the two Nodes within an intact review.
func FuzzDecodeNodes(f *testing.F) {
	for i, text := range nodeTexts() {
		f.Add(text, plainAfter, i%3 == 0)
		f.Add(plainBefore, text, i%3 == 1)
		f.Add(text, text, false)
	}
	f.Fuzz(func(t *testing.T, before, after string, create bool) {
		body := around(before, after)
		if create {
			body = strings.Replace(strings.Replace(body, `"subResource":"status",`, "", 1), `"UPDATE"`, `"CREATE"`, 1)
		}
		decodesLikeTyped(t, []byte(body))
	})
}

// FuzzDecodeParts changes single values on the paths that the rules follow.
func FuzzDecodeParts(f *testing.F) {
	for _, fields := range oddFields {
		f.Add(fields, `"2026-03-01T10:00:00Z"`, `"Ready"`, `{"a":"b"}`)
	}
	for _, at := range []string{`null`, `"2026-03-01T1:00:00Z"`, `"2026-03-01T10:00:00.5+01:30"`, `"0000-01-01T00:00:00Z"`, `""`, `1`} {
		f.Add(`{}`, at, `"x"`, `null`)
	}
	f.Fuzz(func(t *testing.T, fields, at, typ, labels string) {
		before := nodeOf(`{"labels":`+labels+`,"managedFields":[{"subresource":"status","time":`+at+`,"fieldsV1":`+fields+`}]}`, `{"conditions":[{"type":`+typ+`,"lastHeartbeatTime":`+at+`}]}`)
		after := nodeOf(`{"labels":{"a":"b"},"ownerReferences":`+labels+`,"managedFields":[{"subresource":`+typ+`,"time":`+at+`,"fieldsV1":{"f:status":`+fields+`}}]}`, `{"conditions":[{"type":"Ready","message":`+typ+`,"lastTransitionTime":`+at+`}]}`)
		decodesLikeTyped(t, []byte(around(before, after)))
		decodesLikeTyped(t, []byte(around(after, before)))
	})
}
