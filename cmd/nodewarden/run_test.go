package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodewarden/nodewarden/contract"
)

// call runs the program as a shell would.
func call(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run("nodewarden", args, streams{strings.NewReader(in), &stdout, &stderr})
	return code, stdout.String(), stderr.String()
}

const before = `apiVersion: v1
kind: Node
metadata:
  name: n1
  managedFields:
  - manager: kubelet
    operation: Update
    apiVersion: v1
    subresource: status
    time: "2026-03-01T12:00:00Z"
    fieldsType: FieldsV1
    fieldsV1: {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {"f:lastHeartbeatTime": {}, "f:status": {}}}}}
status:
  conditions:
  - {type: MemoryPressure, status: "False"}
  - {type: Ready, status: "True", reason: KubeletReady, message: kubelet is posting ready status, lastHeartbeatTime: "2026-03-01T12:00:00Z", lastTransitionTime: "2026-03-01T11:00:00Z"}
`

// nodeFiles writes the Node before and, with its Ready entry replaced, after.
func nodeFiles(t *testing.T, ready string) (string, string) {
	t.Helper()
	dir := t.TempDir()
	after, lines := "", strings.Split(before, "\n")
	for _, line := range lines {
		if strings.Contains(line, "type: Ready,") {
			line = "  - " + ready
		}
		after += line + "\n"
	}
	for name, text := range map[string]string{"before.yaml": before, "after.yaml": after} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "before.yaml"), filepath.Join(dir, "after.yaml")
}

const (
	correct  = `{type: Ready, status: Unknown, reason: OutOfBandProbeFailed, message: no answer, lastHeartbeatTime: "2026-03-01T12:00:00Z", lastTransitionTime: "2026-03-01T12:05:00Z"}`
	reserved = `{type: Ready, status: Unknown, reason: NodeStatusUnknown, message: no answer, lastHeartbeatTime: "2026-03-01T12:05:00Z", lastTransitionTime: "2026-03-01T12:05:00Z"}`
	detector = "system:serviceaccount:liveness:detector"
)

func TestCheckAnswersWithItsExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		ready string
		args  []string
		code  int
		want  []string
	}{
		"a correct write is admitted": {correct, nil, exitDone, []string{"admitted: Node n1, written by " + detector + " (external)"}},
		"a broken contract is refused, with every rule explained": {reserved, nil, exitRefused,
			[]string{"REFUSED [ReservedReason,HeartbeatModified]", "ReservedReason (deny): broken when", "remedy  send a reason of your own"}},
		"a rule that warns is told and admitted":    {reserved, []string{"--profile=warn"}, exitDone, []string{"admitted", "ReservedReason (warn)"}},
		"a stale intent is refused":                 {strings.ReplaceAll(correct, "12:05:00Z", "11:59:00Z"), nil, exitRefused, []string{"[NewerReady]", "2026-03-01T12:00:01Z or later"}},
		"the node's own kubelet may write anything": {reserved, []string{"--as=system:node:n1", "--as-group=system:nodes"}, exitDone, []string{"(kubelet)", "never judged"}},
		"a write that leaves Ready alone is no matter of the contract": {
			`{type: Ready, status: "True", reason: KubeletReady, message: kubelet is posting ready status, lastHeartbeatTime: "2026-03-01T12:00:00Z", lastTransitionTime: "2026-03-01T11:00:00Z"}`,
			nil, exitDone, []string{"leaves the Ready entry as it is"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := nodeFiles(t, c.ready)
			args := append([]string{"check", "--before", before, "--after", after, "--as", detector, "--now=2026-03-01T12:05:00Z"}, c.args...)
			code, out, errs := call(t, "", args...)
			if code != c.code || errs != "" {
				t.Errorf("exit code %d, want %d; standard error %q", code, c.code, errs)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("the output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}

func TestARecoveryThatIsYoungIsHeldByTheClockOfTheServer(t *testing.T) {
	young := strings.ReplaceAll(correct, "2026-03-01T12:05:00Z", "2026-03-01T12:00:05Z")
	before, after := nodeFiles(t, young)
	text, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	recovered := strings.ReplaceAll(string(text), `lastTransitionTime: "2026-03-01T11:00:00Z"`, `lastTransitionTime: "2026-03-01T12:00:00Z"`)
	if err := os.WriteFile(before, []byte(recovered), 0o600); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]int{"2026-03-01T12:00:05Z": exitRefused, "2026-03-01T12:00:10Z": exitDone} {
		code, out, _ := call(t, "", "check", "--before", before, "--after", after, "--as", detector, "--now", now)
		if code != want {
			t.Errorf("at %s: exit code %d, want %d\n%s", now, code, want, out)
		}
	}
}

func TestCheckSaysWhatManagedFieldsWouldHaveTold(t *testing.T) {
	before, after := nodeFiles(t, correct)
	for _, name := range []string{before, after} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(text), "  managedFields:")
		_, status, _ := strings.Cut(rest, "status:\n  conditions")
		if err := os.WriteFile(name, []byte(head+"status:\n  conditions"+status), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := call(t, "", "check", "--before", before, "--after", after, "--as", detector)
	if code != exitDone || !strings.Contains(out, "--show-managed-fields") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestAFieldThatIsSpeltOtherwiseIsAnother(t *testing.T) {
	before, after := nodeFiles(t, correct)
	text, err := os.ReadFile(after)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(after, []byte(strings.Replace(string(text), "reason:", "Reason:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := call(t, "", "check", "--before", before, "--after", after, "--as", detector)
	if code != exitRefused || !strings.Contains(out, "ReasonMissing") || !strings.Contains(out, `Reason": it is passed over`) {
		t.Errorf("exit code %d, want %d, [ReasonMissing] and a note:\n%s", code, exitRefused, out)
	}
}

func TestAWriteArrivesWhenItIsSaidTo(t *testing.T) {
	before, after := nodeFiles(t, correct)
	text, err := os.ReadFile(after)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "  managedFields:")
	_, status, _ := strings.Cut(rest, "status:\n  conditions")
	hidden := filepath.Join(t.TempDir(), "hidden.yaml")
	if err := os.WriteFile(hidden, []byte(head+"status:\n  conditions"+status), 0o600); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, name := range []string{after, hidden} {
		_, out, errs := call(t, "", "check", "--before", before, "--after", name, "--as", detector, "--now", "2020-01-01T00:00:00Z", "-o", "json")
		if !strings.Contains(out, "ClockSkew") {
			t.Errorf("%s: a write six years early is no skew:\n%s%s", name, out, errs)
		}
		said = append(said, out)
	}
	if said[0] != said[1] {
		t.Errorf("hidden managedFields change the verdict:\n%s\n%s", said[0], said[1])
	}
	if _, out, _ := call(t, "", "check", "--before", before, "--after", hidden, "--as", detector); !strings.Contains(out, "is taken to reach the API server at") || !strings.Contains(out, "ClockSkew") {
		t.Errorf("without --now a write from a file with hidden managedFields arrives now:\n%s", out)
	}
}

func TestAKubeletWithoutItsGroupIsToldWhatItLacks(t *testing.T) {
	before, after := nodeFiles(t, correct)
	for group, want := range map[string]string{"system:authenticated": "--as-group system:nodes", "system:nodes": "never judged"} {
		_, out, errs := call(t, "", "check", "--before", before, "--after", after, "--as", "system:node:n1", "--as-group", group)
		if !strings.Contains(out, want) {
			t.Errorf("in %s: missing %q in:\n%s%s", group, want, out, errs)
		}
	}
}

func TestCheckReadsAReviewFromStandardInput(t *testing.T) {
	review := func(operation, subresource string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"` + operation + `","resource":{"version":"v1","resource":"nodes"},"subResource":"` + subresource + `",
"userInfo":{"username":"` + detector + `"},"name":"n1",
"oldObject":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}},
"object":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":"2026-03-01T12:05:00Z"}]}}}}`
	}
	code, out, _ := call(t, review("UPDATE", "status"), "check", "-o", "json")
	var v verdict
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if code != exitRefused || v.Admitted || len(v.Broken) != 1 || v.Broken[0].Rule != contract.ReservedReason || v.Writer != contract.External {
		t.Errorf("exit code %d, verdict %+v", code, v)
	}
	if code, _, _ := call(t, review("UPDATE", "status"), "check", "--as=system:node:n1", "--as-group=system:nodes"); code != exitDone {
		t.Errorf("the same by the node's own kubelet: exit code %d", code)
	}
	if code, out, _ := call(t, review("CREATE", ""), "check"); code != exitDone || !strings.Contains(out, "(warn)") {
		t.Errorf("the same as a creation: exit code %d\n%s", code, out)
	}
	for _, elsewhere := range []string{review("UPDATE", ""), review("DELETE", "")} {
		if code, out, _ := call(t, elsewhere, "check"); code != exitDone || !strings.Contains(out, "outside the contract") {
			t.Errorf("exit code %d\n%s", code, out)
		}
	}
}

func TestInputThatCannotBeJudgedExitsWithTwoAndARemedy(t *testing.T) {
	beforeFile, afterFile := nodeFiles(t, correct)
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	pod, empty := file("pod", "apiVersion: v1\nkind: Pod\n"), file("empty", "apiVersion: v1\nkind: Config\n")
	after := func(name, text string) []string { return []string{"check", "--after", file(name, text)} }
	review := func(operation, kind, name string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"operation":"` + operation + `","resource":{"version":"v1","resource":"nodes"},"subResource":"status","name":"n1",` +
			`"object":{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"n1"}},"oldObject":{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `"}}}}`
	}
	for name, c := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"nothing at all":                    {"", []string{"check"}, "use --before and --after"},
		"only the Node before":              {"", []string{"check", "--before", beforeFile}, "--after"},
		"a file that is not there":          {"", []string{"check", "--after", "/nowhere"}, "--after"},
		"a Pod":                             {"", []string{"check", "--after", pod}, `kind "Pod": want one v1 Node`},
		"an empty name for the Node before": {"", []string{"check", "--before", "", "--after", pod}, `--before ""`},
		"conditions that are none":          {"", after("word", node+"status: {conditions: x}\n"), `no Node: status.conditions is "x": want a list`},
		"a heartbeat that is no time":       {"", after("noon", node+"status: {conditions: [{type: Other}, {type: Ready, lastHeartbeatTime: noon}]}\n"), `status.conditions[1].lastHeartbeatTime is "noon": want a time such as 2026-01-31T10:00:00Z`},
		"a list for a Node":                 {"", after("list", "[1]\n"), "it is a list: want an object"},
		"two documents in one file":         {"", after("two", node+"---\n"+node), "several YAML documents"},
		"two documents with three dots":     {"", after("dots", node+"...\n"+node), "several YAML documents"},
		"two JSON documents":                {"", after("json", `{"apiVersion":"v1","kind":"Node"} {"apiVersion":"v1","kind":"Node"}`), "several YAML documents"},
		"two reviews":                       {review("UPDATE", "Node", "n1") + review("UPDATE", "Node", "n1"), []string{"check"}, "several YAML documents"},
		"a status that YAML takes for true": {"", after("true", node+"status: {conditions: [{type: Ready, status: True}]}\n"), "status.conditions[0].status is true: want text, which needs quotes"},
		"a label that is a number":          {"", after("label", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {a: 5}}\n"), "metadata.labels.a is 5: want text"},
		"fields where a list belongs":       {"", after("fields", node+"status: {conditions: {a: b}}\n"), "status.conditions is an object: want a list"},
		"a list where labels belong":        {"", after("labels", "apiVersion: v1\nkind: Node\nmetadata: {labels: [a]}\n"), "metadata.labels is a list: want an object"},
		"an amount that is none":            {"", after("amount", node+"status: {capacity: {memory: 4Gi, cpu: much}}\n"), `status.capacity.cpu is "much": want an amount such as 4, 500m or 16Gi`},
		"an amount of no unit":              {"", after("unit", node+"status: {allocatable: {memory: 4GiB}}\n"), `status.allocatable.memory is "4GiB"`},
		"an amount that is true":            {"", after("yes", node+"status: {allocatable: {cpu: 4, pods: true}}\n"), `status.allocatable.pods is true`},
		"a reason that is there twice":      {"", after("twice", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","reason":"A","reason":"B"}]}}`), "reason"},
		"a Node without a name":             {"", after("nameless", "apiVersion: v1\nkind: Node\n"), "metadata.name is missing"},
		"an operation that is none":         {review("update", "Node", "n1"), []string{"check"}, `request.operation "update": want one of`},
		"a review of a Pod":                 {review("UPDATE", "Pod", "n1"), []string{"check"}, `request.object is apiVersion "v1", kind "Pod": want a v1 Node`},
		"a review of two Nodes":             {review("UPDATE", "Node", "n2"), []string{"check"}, `request.oldObject is Node "n2" and request.name "n1"`},
		"a review whose fields are shouted": {`{"ApiVersion":"admission.k8s.io/v1","Kind":"AdmissionReview"}`, []string{"check"}, "want an AdmissionReview"},
		"a review of nothing":               {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}`, []string{"check"}, "request.operation"},
		"an emoji in JSON's escapes":        {`{"apiVersion":"v1","kind":"\ud83d\ude00"}`, []string{"check"}, "want an AdmissionReview"},
		"an endless review":                 {strings.Repeat(" ", 16<<20+1), []string{"check"}, "longer than 16 MiB"},
		"an empty review":                   {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, []string{"check"}, "with a request"},
		"an old review":                     {`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`, []string{"check"}, "admission.k8s.io/v1 "},
		"garbage":                           {"{", []string{"check"}, "standard input"},
		"an unknown output":                 {"", []string{"check", "-o", "xml"}, "text or json"},
		"an unknown profile":                {"", []string{"check", "--profile", "strict"}, "enforce"},
		"an unknown rule":                   {"", []string{"check", "--explain", "Nope"}, "ReadyMissing"},
		"no rule to explain":                {"", []string{"check", "--explain", ""}, "ReadyMissing"},
		"a write beside a rule to explain":  {"", []string{"check", "--explain", "ReadyMissing", "--after", afterFile, "-o", "json"}, "--after, --output would do nothing"},
		"a time that is none":               {"", []string{"check", "--now", "noon", "--after", afterFile}, "2026-03-01T12:00:00Z"},
		"an unknown flag":                   {"", []string{"check", "--befor", "x"}, "befor"},
		"an unknown command":                {"", []string{"chekc"}, "chekc"},
		"a form that is none":               {"", []string{"policy", "render", "--form", "crd"}, "webhook, policy or static"},
		"no form":                           {"", []string{"policy", "render"}, "--form"},
		"static without a folder":           {"", []string{"policy", "render", "--form", "static"}, "--output-dir"},
		"a service that is none":            {"", []string{"policy", "render", "--form", "webhook", "--service", "x"}, "NAMESPACE/NAME"},
		"failing closed on an old server": {"", []string{"policy", "render", "--form", "webhook", "--install", "webhook-alone", "--kubernetes-version", "1.27"},
			"would stop every kubelet's report"},
		"policies on an old server":                          {"", []string{"policy", "render", "--form", "policy", "--kubernetes-version", "1.29"}, "1.30"},
		"a CA that is none":                                  {"", []string{"policy", "render", "--form", "webhook", "--ca-file", pod}, "PEM"},
		"a CA that comes with its key":                       {"", []string{"policy", "render", "--form", "webhook", "--ca-file", file("certificate-key", certificate(t)+pemBlock("EC PRIVATE KEY", "key"))}, `it holds a block "EC PRIVATE KEY", and a caBundle is public`},
		"a key that comes with its CA":                       {"", []string{"policy", "render", "--form", "webhook", "--ca-file", file("key-certificate", pemBlock("PRIVATE KEY", "key")+certificate(t))}, `it holds a block "PRIVATE KEY", and a caBundle is public`},
		"a certificate that is none":                         {"", []string{"policy", "render", "--form", "webhook", "--ca-file", file("none", pemBlock("CERTIFICATE", "none"))}, "certificate 1: x509"},
		"a certificate that lost a line":                     {"", []string{"policy", "render", "--form", "webhook", "--ca-file", file("lost", certificate(t)+"-----BEGIN CERTIFICATE-----\nAA\n")}, "1 of its 2 PEM blocks cannot be read"},
		"a version that is empty":                            {"", []string{"policy", "render", "--form", "policy", "--kubernetes-version", ""}, `--kubernetes-version ""`},
		"a kubelet command that is misspelt":                 {"", []string{"kubelet", "lnt", pod}, `unknown command "lnt"`},
		"a service whose name is none":                       {"", []string{"policy", "render", "--form", "webhook", "--service", "A_/b"}, `--service "A_/b"`},
		"a path with a query":                                {"", []string{"policy", "render", "--form", "webhook", "--path", "/a?b"}, `path "/a?b": want a path such as /validate`},
		"a path that is empty":                               {"", []string{"policy", "render", "--form", "webhook", "--path", ""}, `--path "": want a path such as /validate`},
		"a path with two slashes":                            {"", []string{"policy", "render", "--form", "webhook", "--path", "/a//b"}, `path "/a//b": want a path such as /validate`},
		"a path with a space":                                {"", []string{"policy", "render", "--form", "webhook", "--path", "/a b"}, `path "/a b": want a path such as /validate`},
		"a profile that is empty":                            {"", []string{"policy", "render", "--form", "policy", "--profile", ""}, `--profile ""`},
		"a CA without a name":                                {"", []string{"policy", "render", "--form", "webhook", "--ca-file", ""}, `--ca-file ""`},
		"a folder without a name":                            {"", []string{"policy", "render", "--form", "policy", "--output-dir", ""}, `--output-dir ""`},
		"a URL that is empty":                                {"", []string{"policy", "render", "--form", "webhook", "--url", ""}, `--url "": want https://HOST/PATH`},
		"a service and a URL":                                {"", []string{"policy", "render", "--form", "webhook", "--service", "a/b", "--url", "https://localhost"}, "one or the other"},
		"a service for policies":                             {"", []string{"policy", "render", "--form", "policy", "--service", "a/b"}, "--service is for --form webhook"},
		"a folder on the host for policies that are applied": {"", []string{"policy", "render", "--form", "policy", "--host-dir", "/etc"}, "--host-dir is for --form static"},
		"a policy file without a name":                       {"", []string{"policy", "render", "--form", "policy", "--config", ""}, `--config ""`},
		"a profile for a webhook, which has its own":         {"", []string{"policy", "render", "--form", "webhook", "--profile", "warn"}, "--profile is for --form policy and static and does nothing for --form webhook: leave it out"},
		"a writer without a name":                            {"", []string{"check", "--after", afterFile, "--as", ""}, `--as "": want a user, or leave it out`},
		"a group without a name":                             {"", []string{"check", "--after", afterFile, "--as", "a", "--as-group", "b", "--as-group", ""}, `--as-group "": want a group`},
		"a time that is empty":                               {"", []string{"check", "--after", afterFile, "--now", ""}, `--now "": want a time such as`},
		"an empty name for the Node after":                   {"", []string{"check", "--before", beforeFile, "--after", ""}, `--after "": want a file`},
		"an answer beside an empty Node":                     {"", []string{"check", "--before", "", "--after", ""}, `--before "": want a file`},
		"a folder that is a file":                            {"", []string{"policy", "render", "--form", "policy", "--output-dir", pod}, "--output-dir: mkdir " + pod},
		"a kubeconfig that is not there":                     {"", []string{"verify", "--kubeconfig", "/nowhere/kubeconfig"}, `find the API server (--kubeconfig "/nowhere/kubeconfig")`},
		"a kubeconfig that is empty":                         {"", []string{"verify", "--kubeconfig", empty}, "no cluster is named there"},
		"a negative wait":                                    {"", []string{"verify", "--wait", "-1s"}, "--wait"},
		"an answer that no cluster gives":                    {"", []string{"verify", "--expect", "joy"}, "--expect"},
		"a host folder that is relative":                     {"", []string{"policy", "render", "--form", "static", "--output-dir", t.TempDir(), "--host-dir", "x"}, "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := call(t, c.in, c.args...)
			if code != exitUsage || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "nodewarden: ") {
				t.Errorf("exit code %d, standard error %q: want 2 and %q", code, errs, c.want)
			}
			if out != "" {
				t.Errorf("standard output should be empty: %q", out)
			}
		})
	}
}

// An empty value comes of a shell variable that is not set.
func TestNoFlagTakesAnEmptyValueForItsAbsence(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			visit(below)
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if kind := flag.Value.Type(); !strings.HasPrefix(kind, "string") || slices.Contains(mayBeEmpty, flag.Name) {
				return
			}
			args := append(strings.Fields(cmd.CommandPath())[1:], "--"+flag.Name, "")
			if strings.Contains(cmd.Use, " FILE...") || strings.Contains(cmd.Use, " INTENT") {
				args = append(args, "file")
			}
			code, out, errs := call(t, "", args...)
			if code != exitUsage || out != "" || !strings.Contains(errs, "--"+flag.Name+` "": want `) {
				t.Errorf("%q: exit code %d: %s%s", args, code, out, errs)
			}
		})
	}
	visit(newRoot("nodewarden", streams{}))
}

func TestAClusterThatCannotBeAskedIsNoAnswer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "empty"))
	if _, _, errs := call(t, "", "verify", "--wait", "0s"); !strings.Contains(errs, "no cluster is named there; give --kubeconfig, set $KUBECONFIG to a file that exists, or run in a pod") {
		t.Errorf("no remedy: %s", errs)
	}
	t.Setenv("KUBECONFIG", file)
	if _, _, errs := call(t, "", "verify", "--wait", "0s"); !strings.Contains(errs, "ask the API server https://127.0.0.1:1 ($KUBECONFIG "+strconv.Quote(file)+")") {
		t.Errorf("the file that $KUBECONFIG names is not named: %s", errs)
	}
	if code, _, errs := call(t, "", "verify", "--wait", "0s", "--context", "other"); code != exitUsage || !strings.Contains(errs, `--context "other": there is none of this name; want one of ["c"]`) {
		t.Errorf("exit code %d, want %d: %s", code, exitUsage, errs)
	}
	if code, _, errs := call(t, "", "verify", "--wait", "1s"); code != exitFailed || !strings.Contains(errs, "refused; asking again for up to 1s\n") {
		t.Errorf("an API server on its way up is not waited for; exit code %d, want %d: %s", code, exitFailed, errs)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWhatCannotBePrintedIsAFailureOfEveryCommand(t *testing.T) {
	before, after := nodeFiles(t, correct)
	config := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"rules"}, {"version"}, {"check", "--explain", "ReadyMissing"}, {"policy", "render", "--form", "policy"}, {"--help"},
		{"check", "--before", before, "--after", after, "--as", detector},
		{"kubelet", "edit", config, "--node-lease", "off"}, {"kubelet", "lint", config, "--kubelet-version", "1.37"},
	} {
		var errs bytes.Buffer
		if code := run("nodewarden", args, streams{strings.NewReader(""), full{}, &errs}); code != exitFailed || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, exitFailed, &errs)
		}
	}
}

func TestACreationArrivesWhenItsOwnEntrySays(t *testing.T) {
	_, after := nodeFiles(t, correct)
	if code, out, _ := call(t, "", "check", "--after", after, "--as", detector); code != exitDone || !strings.Contains(out, "is 300s from the API server's clock, 2026-03-01T12:00:00Z") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestOnlyCertificatesBecomeTheBundle(t *testing.T) {
	ca := certificate(t)
	name := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(name, []byte("# issued by nobody\n"+ca+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call(t, "", "policy", "render", "--form", "webhook", "--ca-file", name)
	if want := base64.StdEncoding.EncodeToString([]byte(ca)); code != exitDone || strings.Count(out, "caBundle: "+want+"\n") != 2 {
		t.Errorf("exit code %d, want both entries with the certificate alone: %s%s", code, errs, out)
	}
}

func pemBlock(kind, text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(text)}))
}

// certificate is a PEM file with a certificate in it.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pemBlock("CERTIFICATE", string(der))
}

func TestRulesAreListedInTableOrderWithTheirActions(t *testing.T) {
	_, out, _ := call(t, "", "rules", "--profile=warn")
	at := -1
	for _, r := range contract.Rules() {
		next := strings.Index(out, string(r)+" ")
		if next <= at {
			t.Errorf("%s is missing or out of order:\n%s", r, out)
		}
		at = next
	}
	if strings.Contains(out, "deny") {
		t.Errorf("a rule denies in the warn profile:\n%s", out)
	}
	for _, r := range contract.Rules() {
		if code, out, _ := call(t, "", "rules", string(r)); code != exitDone || !strings.Contains(out, r.Refuses()) {
			t.Errorf("rules %s: exit code %d\n%s", r, code, out)
		}
	}
}

func TestAsAPluginItNamesItselfTheWayItIsCalled(t *testing.T) {
	var out bytes.Buffer
	if code := run("kubectl-nodewarden", []string{"check", "--help"}, streams{strings.NewReader(""), &out, &out}); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(out.String(), "kubectl nodewarden check --before before.yaml") || strings.Contains(out.String(), "  nodewarden ") {
		t.Errorf("usage does not say kubectl nodewarden:\n%s", out.String())
	}
}

func TestRenderedOutputIsTheSameEveryTime(t *testing.T) {
	for _, form := range []string{"webhook", "policy"} {
		_, first, _ := call(t, "", "policy", "render", "--form", form)
		_, second, _ := call(t, "", "policy", "render", "--form", form)
		if first == "" || first != second {
			t.Errorf("--form %s differs from one run to the next, or is empty", form)
		}
	}
	folder := t.TempDir()
	if code, out, errs := call(t, "", "policy", "render", "--form", "static", "--output-dir", folder); code != exitDone || !strings.Contains(out, "admission-configuration.yaml") {
		t.Errorf("exit code %d: %s %s", code, out, errs)
	}
}

// An API server loads the folder again on every change, and takes half a file
// for a policy less.
func TestAFileIsReplacedInOneStepOrNotAtAll(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "admission-configuration.yaml")
	render := func(want int) string {
		t.Helper()
		code, out, errs := call(t, "", "policy", "render", "--form", "static", "--output-dir", folder)
		if code != want {
			t.Fatalf("exit code %d, want %d: %s%s", code, want, out, errs)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "*", ".nodewarden-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		return errs
	}
	render(exitDone)
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	render(exitDone)
	after, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if os.SameFile(before, after) || after.Mode() != before.Mode() || after.Size() != before.Size() {
		t.Errorf("written in place, or not as it was: %v, %d bytes", after.Mode(), after.Size())
	}
	// The last moment at which it can fail.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(name, "in-the-way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if errs := render(exitFailed); !strings.Contains(errs, "--output-dir: rename") {
		t.Error(errs)
	}
}
