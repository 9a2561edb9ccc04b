// Package verify is `nodewarden verify`: it asks a live cluster whether the
// contract is in force there, by a write that must not be admitted and that is
// never stored. It changes nothing, and it cannot see what is only audited.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodewarden/nodewarden/contract"
)

// Answer is what a cluster does with a write that breaks the contract. The
// values are those of --expect.
type Answer string

// The answers, and what an install has to be set to for each.
const (
	Refusal Answer = "refusal" // profile enforce
	Warning Answer = "warning" // profile warn
	Silence Answer = "silence" // profile audit, or no guard at all
)

// answers are all of them, the strictest first.
var answers = []Answer{Refusal, Warning, Silence}

// Options say what to ask, and of whom.
type Options struct {
	// Expect is the answer that is as it should be.
	Expect Answer
	// Node is the one whose failure is made up; empty means any.
	Node string
	// Wait is how long the answer may take to become the expected one: an API
	// server needs a moment to notice a new policy.
	Wait time.Duration
	// Out receives the answer.
	Out io.Writer
	// Log receives a line if the cluster has to be asked again.
	Log io.Writer
}

// Command is `nodewarden verify`.
func Command() *cobra.Command {
	o := Options{Expect: Refusal, Wait: 30 * time.Second}
	kubeconfig, kubecontext := "", ""
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Ask a cluster whether the contract is in force, with a write that is never stored",
		Long: "Reports the failure of a node with the reserved reason, which the rule ReservedReason forbids, as a dry run, and says what the cluster answers. " +
			"It needs to list nodes and to patch nodes/status. It exits with 0 when the answer is the expected one, with 1 when it is another, with 2 when a flag cannot be used, and with 3 when the cluster cannot be asked.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			cfg, err := load(kubeconfig, kubecontext)
			if err != nil {
				return fmt.Errorf("find the API server (%s): %w", source(kubeconfig), err)
			}
			o.Out, o.Log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			err = Run(cmd.Context(), cfg, o)
			if err != nil && !errors.As(err, &Unexpected{}) {
				err = fmt.Errorf("ask the API server %s (%s): %w", cfg.Host, source(kubeconfig), err)
			}
			return err
		},
	}
	cmd.Flags().StringVar((*string)(&o.Expect), "expect", string(o.Expect), "the answer that is as it should be: refusal (profile enforce), warning (profile warn) or silence (profile audit; a cluster without the guard is silent too)")
	cmd.Flags().StringVar(&o.Node, "node", o.Node, "node whose failure is made up; empty means any")
	cmd.Flags().DurationVar(&o.Wait, "wait", o.Wait, "how long the answer may take to become the expected one; a busy server is asked again until then")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "path of a kubeconfig; without it $KUBECONFIG, or else ~/.kube/config, or else the service account of the pod, is used")
	cmd.Flags().StringVar(&kubecontext, "context", kubecontext, "context of the kubeconfig; empty means its current one")
	return cmd
}

// UsageError is an option that cannot be used.
type UsageError struct{ error }

func (o Options) validate() error {
	if !slices.Contains(answers, o.Expect) {
		return UsageError{fmt.Errorf("--expect: %q: want one of %q", o.Expect, answers)}
	}
	if o.Wait < 0 {
		return UsageError{fmt.Errorf("--wait: %s: want 0s or longer", o.Wait)}
	}
	return nil
}

// load follows kubectl's rules.
func load(path, kubecontext string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	overrides := &clientcmd.ConfigOverrides{CurrentContext: kubecontext}
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	cfg, err := kubeconfig.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("no cluster is named there; give --kubeconfig, set $KUBECONFIG to a file that exists, or run in a pod")
	}
	if raw, rawErr := kubeconfig.RawConfig(); err != nil && rawErr == nil && kubecontext != "" && raw.Contexts[kubecontext] == nil {
		return nil, UsageError{fmt.Errorf("--context %q: there is none of this name; want one of %q", kubecontext, slices.Sorted(maps.Keys(raw.Contexts)))}
	}
	if err != nil && path != "" {
		return nil, UsageError{err}
	}
	return cfg, err
}

// source says where load looks.
func source(path string) string {
	if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); path == "" && files != "" {
		return "$" + clientcmd.RecommendedConfigPathEnvVar + " " + strconv.Quote(files)
	}
	if path == "" {
		return "no --kubeconfig, no $KUBECONFIG: " + clientcmd.RecommendedHomeFile
	}
	return "--kubeconfig " + strconv.Quote(path)
}

// Unexpected is an answer that is not as it should be.
type Unexpected struct {
	Want, Got Answer
	// Said is what the cluster said.
	Said string
}

func (u Unexpected) Error() string {
	text := fmt.Sprintf("the cluster answers a write that breaks the contract with %s, not with %s", u.Got, u.Want)
	if u.Said != "" {
		text += ": " + u.Said
	}
	switch {
	case u.Got == Silence:
		text += "; look for the policies and the webhook configuration, and at their profile and rules[ReservedReason]; under profile audit it is right: --expect silence; whoever the policy spares, a kubelet, a stand-in or a lifecycle controller, meets silence, too"
	case u.Got == Warning && u.Want == Refusal:
		text += "; under profile warn that is right: --expect warning"
	case u.Want == Silence || u.Want == Warning:
		text += "; the profile is stricter than expected"
	}
	return text
}

// Run asks until the answer is the expected one, and tells it. Any other
// answer is an Unexpected.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	cfg = rest.CopyConfig(cfg)
	heard := &warnings{}
	cfg.WarningHandlerWithContext = heard
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Wait+requestTimeout)
	defer cancel()
	q := question{client: client, heard: heard, node: o.Node}
	return q.until(ctx, o)
}

// requestTimeout is granted to the last request, beyond Wait.
const requestTimeout = 10 * time.Second

type question struct {
	client kubernetes.Interface
	heard  *warnings
	node   string // empty until one is picked
}

// pick takes a node that reports, where there is one: any would do.
func (q *question) pick(ctx context.Context) (string, error) {
	list, err := q.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 100})
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	if len(list.Items) == 0 {
		return "", errors.New("the cluster has no Node to make up a failure of")
	}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return n.Name, nil
			}
		}
	}
	return list.Items[0].Name, nil
}

func (q *question) until(ctx context.Context, o Options) error {
	giveUp := time.Now().Add(o.Wait)
	for asked := 1; ; asked++ {
		got, said, err := q.ask(ctx)
		if err == nil && got == o.Expect {
			if got == Silence {
				said = "a cluster without the guard is silent, too"
			}
			fmt.Fprintf(o.Out, "node %s, a made-up failure with the reserved reason, never stored: %s, as it should be\n%s", q.node, got, line(said))
			return nil
		}
		switch late := time.Now().After(giveUp); {
		case err != nil && (late || !passes(err)):
			return err
		case late:
			return Unexpected{Want: o.Expect, Got: got, Said: said}
		case asked > 1:
		case err != nil:
			fmt.Fprintf(o.Log, "%v; asking again for up to %s\n", err, o.Wait)
		default:
			fmt.Fprintf(o.Log, "%s, not %s; asking again for up to %s\n", got, o.Expect, o.Wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// passes reports whether an error says nothing about the question: the API
// server, or what it asks in turn, is busy or on its way up.
func passes(err error) bool {
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

func line(text string) string {
	if text == "" {
		return ""
	}
	return text + "\n"
}

// ask sends the write, and sorts the answer.
func (q *question) ask(ctx context.Context) (Answer, string, error) {
	var err error
	if q.node == "" {
		if q.node, err = q.pick(ctx); err != nil {
			return "", "", err
		}
	}
	q.heard.forget()
	_, err = q.client.CoreV1().Nodes().Patch(ctx, q.node, types.StrategicMergePatchType, forbidden(time.Now()),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "nodewarden-verify"}, "status")
	bracket := string(contract.ReservedReason)
	switch {
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), bracket):
		return Refusal, err.Error(), nil
	case err != nil:
		return "", "", fmt.Errorf("write nodes/status of %s, as a dry run: %w", q.node, err)
	}
	if said := q.heard.about(bracket); said != "" {
		return Warning, said, nil
	}
	return Silence, "", nil
}

// forbidden is a report of a failure with the reason that belongs to the node
// lifecycle controller, and with nothing else to object to: its stamp is later
// than a kubelet's word of this very second.
func forbidden(now time.Time) []byte {
	patch, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{ // strings always encode
		"type": corev1.NodeReady, "status": corev1.ConditionUnknown, "reason": "NodeStatusUnknown",
		"message": "nodewarden verify: a dry run", "lastTransitionTime": now.Add(time.Second).UTC().Format(time.RFC3339),
	}}}})
	return patch
}

// warnings keeps what the API server says beside its answer.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeaderWithContext keeps one warning.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *warnings) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = nil
}

// about is the first warning that holds a word, or nothing.
func (w *warnings) about(word string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.said {
		if strings.Contains(text, word) {
			return text
		}
	}
	return ""
}
