package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodewarden/nodewarden/cmd/nodewarden/demo"
	"github.com/nodewarden/nodewarden/cmd/nodewarden/kubelet"
	"github.com/nodewarden/nodewarden/cmd/nodewarden/verify"
)

// The exit codes. Other commands keep to them in their own words.
const (
	exitDone    = 0 // done, and the answer is yes
	exitRefused = 1 // done, and the answer is no
	exitUsage   = 2 // the command line or the input cannot be used
	exitFailed  = 3 // it could not be done: no API server, no space, a step of the demo that failed
)

// errRefused says that a command did its work and the answer was no. It has
// already been printed.
var errRefused = errors.New("refused")

// errFault wraps an error that is neither an answer nor a usage problem.
type errFault struct{ error }

// output remembers that what was said has not reached anybody.
type output struct {
	to  io.Writer
	err error
}

// Write passes p on.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil && err != nil {
		o.err = err
	}
	return n, err
}

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// run is the program, called by the name it was installed under.
func run(name string, args []string, s streams) int {
	out := &output{to: s.out}
	s.out = out
	root := newRoot(name, s)
	root.SetArgs(args)
	err := root.Execute()
	if out.err != nil {
		err = errFault{out.err}
	}
	var fault errFault
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errRefused), errors.Is(err, kubelet.ErrFindings):
		return exitRefused
	case errors.As(err, &fault), errors.As(err, &kubelet.Fault{}):
		fmt.Fprintf(s.err, "%s: %v\n", name, err)
		return exitFailed
	case errors.As(err, &verify.Unexpected{}):
		fmt.Fprintf(s.err, "%s: %v\n", name, err)
		return exitRefused
	default:
		fmt.Fprintf(s.err, "%s: %v\n", name, err)
		return exitUsage
	}
}

func newRoot(name string, s streams) *cobra.Command {
	called := "nodewarden"
	if strings.HasPrefix(name, "kubectl-") {
		called = "kubectl nodewarden"
	}
	root := &cobra.Command{
		Use:   "nodewarden",
		Short: "Keep the Ready condition of Nodes honest",
		Long: `nodewarden holds writers of a Node's Ready condition to the contract of
KEP-6371. This tool judges a write without a cluster, renders what an API
server needs to judge them all, and checks kubelet configuration.`,
		Example: fmt.Sprintf(`  # would this write be refused, and why?
  %[1]s check --before before.yaml --after after.yaml --as system:serviceaccount:liveness:detector

  # what does the contract ask for?
  %[1]s rules

  # the contract inside the API server
  %[1]s policy render --form policy | kubectl apply --server-side -f -`, called),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: called},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Of every command, and before anything is done.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return refuseEmpty(cmd.Flags()) },
		// Completion scripts are not what this tool is for; the command stays, out of sight.
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.AddCommand(checkCommand(s), rulesCommand(s), policyCommand(s), versionCommand(s),
		kubelet.Command(kubelet.Streams{In: s.in, Out: s.out, Err: s.err}), verifyCommand(), demoCommand())
	for _, cmd := range root.Commands() {
		sayAs(cmd, called)
	}
	return root
}

// sayAs has the examples call the program as its user does.
func sayAs(cmd *cobra.Command, called string) {
	cmd.Example = strings.ReplaceAll(cmd.Example, "  nodewarden ", "  "+called+" ")
	for _, below := range cmd.Commands() {
		sayAs(below, called)
	}
}

// verifyCommand tells a cluster that could not be asked from a command that was
// called wrongly, and from an answer.
func verifyCommand() *cobra.Command {
	cmd := verify.Command()
	ask := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := ask(cmd, args)
		if err == nil || errors.As(err, &verify.UsageError{}) || errors.As(err, &verify.Unexpected{}) {
			return err
		}
		return errFault{err}
	}
	return cmd
}

// demoCommand tells a step that failed from a command that was called wrongly.
func demoCommand() *cobra.Command {
	cmd := demo.Command()
	play := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := play(cmd, args); err != nil {
			return errFault{err}
		}
		return nil
	}
	return cmd
}
