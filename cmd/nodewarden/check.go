package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodewarden/nodewarden/contract"
)

// checkFlags is the command line of check.
type checkFlags struct {
	policyFlags
	before, after string
	user          string
	groups        []string
	now           string
	output        string
	explain       string
}

func checkCommand(s streams) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [--before NODE] --after NODE | < REVIEW",
		Short: "Judge one write to a Node, without a cluster",
		Long: `Judge one write to a Node, without a cluster: the Node before and after it, as
kubectl get -o yaml prints them, or an AdmissionReview on standard input, YAML
or JSON. Without --before it is the creation of the Node.

The API server's own clock is read from managedFields, which kubectl hides: get
the Nodes with --show-managed-fields, or the rules that need it fall back on the
condition's own stamps.

Exit code 0: admitted, with warnings or without. 1: refused. 2: there was
nothing to judge, because the input or the command line cannot be used. 3: the
verdict could not be printed.`,
		Example: `  kubectl get node n1 -o yaml --show-managed-fields > before.yaml
  nodewarden check --before before.yaml --after after.yaml --as system:serviceaccount:liveness:detector`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("explain") {
				return f.explainAlone(s, cmd.Flags())
			}
			return check(s, f)
		},
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.StringVar(&f.before, "before", "", "file with the Node before the write")
	fs.StringVar(&f.after, "after", "", "file with the Node after the write")
	fs.StringVar(&f.user, "as", "", "user that writes; of a review, instead of the one in it")
	fs.StringArrayVar(&f.groups, "as-group", nil, "group of that user, repeatable; a service account has its own without being told")
	fs.StringVar(&f.now, "now", "", "when the write reaches the API server, RFC 3339; without it, what its own entry in managedFields says, or else now (with --before and --after)")
	fs.StringVarP(&f.output, "output", "o", "text", "text or json")
	fs.StringVar(&f.explain, "explain", "", "explain this rule instead of judging a write")
	return cmd
}

// explainAlone explains a rule; the flags that are about a write would do nothing.
func (f checkFlags) explainAlone(s streams, given *pflag.FlagSet) error {
	var idle []string
	given.Visit(func(flag *pflag.Flag) {
		if !slices.Contains([]string{"explain", "config", "profile"}, flag.Name) {
			idle = append(idle, "--"+flag.Name)
		}
	})
	if len(idle) > 0 {
		return fmt.Errorf("--explain judges no write, so %s would do nothing: leave out one or the other", strings.Join(idle, ", "))
	}
	p, err := f.load()
	if err != nil {
		return err
	}
	return explain(s.out, f.explain, p)
}

func check(s streams, f checkFlags) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("--output %q: want text or json", f.output)
	}
	p, err := f.load()
	if err != nil {
		return err
	}
	now, err := f.arrival()
	if err != nil {
		return err
	}
	q, err := f.read(s.in, now)
	if err != nil {
		return err
	}
	v := judge(q, p)
	print := v.text
	if f.output == "json" {
		print = v.json
	}
	if err := print(s.out); err != nil {
		return err
	}
	if !v.Admitted {
		return errRefused
	}
	return nil
}

// arrival is when the write reaches the API server.
func (f checkFlags) arrival() (time.Time, error) {
	if f.now == "" {
		return time.Now(), nil
	}
	t, err := time.Parse(time.RFC3339, f.now)
	if err != nil {
		return time.Time{}, fmt.Errorf("--now %q: want a time such as 2026-03-01T12:00:00Z", f.now)
	}
	return t, nil
}

// verdict is what the contract says of one write, as -o json prints it.
type verdict struct {
	Admitted bool           `json:"admitted"`
	Node     string         `json:"node"`
	User     string         `json:"user"`
	Writer   contract.Class `json:"writer"`
	// Message is what the webhook would answer to a refused write.
	Message string   `json:"message,omitempty"`
	Broken  []broken `json:"broken"`
	Notes   []string `json:"notes"`
}

// broken is one broken rule.
type broken struct {
	Rule      contract.Rule   `json:"rule"`
	Action    contract.Action `json:"action"`
	Field     string          `json:"field"`
	Was       string          `json:"was"`
	Is        string          `json:"is"`
	Problem   string          `json:"problem"`
	Remedy    string          `json:"remedy"`
	NotBefore string          `json:"notBefore,omitempty"`
}

func judge(q question, p contract.Policy) verdict {
	v := verdict{
		Admitted: true, Node: q.write.Node, User: q.write.User.Name,
		Writer: p.Class(q.write.User, q.write.Node), Broken: []broken{}, Notes: q.notes,
	}
	if q.elsewhere {
		return v
	}
	found := contract.Check(q.write, p)
	for _, b := range found {
		v.Broken = append(v.Broken, brokenFrom(b))
	}
	if denied := contract.With(contract.Deny, found); len(denied) > 0 {
		v.Admitted, v.Message = false, contract.Message(denied)
	}
	v.Notes = slices.Concat(v.Notes, remarks(q.write, p, v.Writer))
	return v
}

// remarks say why there was little to judge, or by what other measure it was.
func remarks(w contract.Write, p contract.Policy, class contract.Class) []string {
	var notes []string
	switch {
	case class != contract.External:
		notes = append(notes, fmt.Sprintf("writers of the class %s are never judged", class))
	case !p.InScope(w):
		notes = append(notes, "the write leaves the Ready entry as it is, so the contract has nothing to say about it")
	case w.Verb == contract.Create:
		notes = append(notes, "a Node's creation records no failure: there every rule warns at most")
	case w.Spoke.IsZero():
		notes = append(notes, "the Node before the write has no managedFields that tell when its kubelet last spoke: "+
			"NewerReady, RecoveryHold and SignalTooYoung go by the condition's own stamps (kubectl get -o yaml --show-managed-fields keeps them)")
	}
	if class == contract.External && w.User.Name == "system:node:"+w.Node && !slices.Contains(w.User.Groups, "system:nodes") {
		notes = append(notes, "the node's own kubelet has the group system:nodes, this user has not (--as-group system:nodes)")
	}
	if p.Skew(w) {
		notes = append(notes, "this is a kube-controller-manager in kubelet mode; the skew webhook counts it")
	}
	return notes
}

func brokenFrom(v contract.Violation) broken {
	b := broken{Rule: v.Rule, Action: v.Action, Field: v.Field, Was: v.Was, Is: v.Is, Problem: v.Problem, Remedy: v.Remedy}
	if !v.NotBefore.IsZero() {
		b.NotBefore = v.NotBefore.Format(time.RFC3339)
	}
	return b
}
