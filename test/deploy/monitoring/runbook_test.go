package monitoring

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

// world is what the runbook's commands find: an install without its pods.
const world = `
apiVersion: v1
kind: Namespace
metadata: {name: nodewarden-system}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  conditions: [{type: Ready, status: "True", reason: KubeletReady}]
---
apiVersion: v1
kind: Node
metadata: {name: n2}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: n1, namespace: kube-node-lease}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kube-controller-manager, namespace: kube-system}
spec: {holderIdentity: cp-1}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: nodewarden-webhook-1
  namespace: nodewarden-system
  labels: {kubernetes.io/service-name: nodewarden-webhook}
addressType: IPv4
endpoints: [{addresses: [10.1.2.3], conditions: {ready: true}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nodewarden-webhook, namespace: nodewarden-system}
spec:
  selector: {matchLabels: {app: w}}
  template:
    metadata: {labels: {app: w}}
    spec: {containers: [{name: w, image: w}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nodewarden-controller, namespace: nodewarden-system}
spec:
  selector: {matchLabels: {app: c}}
  template:
    metadata: {labels: {app: c}}
    spec: {containers: [{name: c, image: c}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: nodewarden-controller, namespace: nodewarden-system}
spec: {holderIdentity: c-1}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: w}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [nodewarden-webhook-tls], verbs: [patch]}
- {apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations], resourceNames: [nodewarden-contract], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: w}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: w}
subjects: [{kind: ServiceAccount, namespace: nodewarden-system, name: nodewarden-webhook}]
`

// step is a command of the runbook and what it says that is printed.
type step struct {
	command string
	prints  []string
}

var console = regexp.MustCompile("(?ms)^```console\n(.*?)^```")

func steps(page string) (all []step) {
	for _, block := range console.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSuffix(line, "\n")
			if command, is := strings.CutPrefix(line, "$ "); is {
				all = append(all, step{command: command})
			} else if n := len(all); n > 0 {
				all[n-1].prints = append(all[n-1].prints, line)
			}
		}
	}
	return all
}

// squeeze makes columns comparable: their width follows from their content.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestTheRunbooksCommandsPrintWhatItSays(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	home := t.TempDir()
	shell, err := guard.Shell(ctx, cp, home)
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(command, stdin string) {
		t.Helper()
		if out, err := shell(command, stdin); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	prepare("kubectl apply --server-side -f -", world)
	certs.New(t).Issue(t, time.Now().Add(time.Hour)).Write(t, home)
	prepare(`kubectl -n nodewarden-system create secret tls nodewarden-webhook-tls --cert="$HOME/tls.crt" --key="$HOME/tls.key"`, "")
	prepare("nodewarden policy render --form policy --profile enforce | kubectl apply --server-side -f -", "")
	prepare("nodewarden policy render --form webhook --install webhook-alone | kubectl apply --server-side -f -", "")

	all := steps(string(read(t, root, "docs", "runbook.md")))
	if len(all) < 20 {
		t.Fatalf("only %d commands found", len(all))
	}
	for _, s := range all {
		if strings.Contains(s.command, " logs ") {
			continue // there are no pods here
		}
		if _, err := exec.LookPath("openssl"); err != nil && strings.Contains(s.command, "openssl") {
			t.Logf("not run, for there is no openssl here: %s", s.command)
			continue
		}
		out, err := shell(s.command, "")
		if err != nil {
			t.Errorf("$ %s\n%v\n%s", s.command, err, out)
			continue
		}
		if err := s.matches(out); err != nil {
			t.Errorf("$ %s\n%v", s.command, err)
		}
	}
}

// matches compares line by line: what is printed may go on, in width and in
// length, but everything that the runbook shows must be there.
func (s step) matches(out string) error {
	if len(s.prints) == 0 && strings.TrimSpace(out) != "" {
		return fmt.Errorf("prints, where nothing is said to be printed:\n%s", out)
	}
	printed := squeeze(out)
	for _, line := range s.prints {
		if !strings.Contains(printed, squeeze(line)) {
			return fmt.Errorf("does not print\n%s\nbut\n%s", line, out)
		}
	}
	return nil
}
