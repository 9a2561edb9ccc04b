// Package kubelet is `nodewarden kubelet`: lint, render and edit kubelet
// configuration files. It reads and writes files; what they mean is decided in
// kubeletcfg. It never talks to a cluster.
package kubelet

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
)

// Streams is where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ErrFindings says that the command did its work and has already printed what
// is not as it should be. There is nothing left to tell but the exit code.
var ErrFindings = errors.New("there are findings")

// Fault is a failure that is no fault of the command line or the input: a file
// could not be written.
type Fault struct{ error }

// Command is `nodewarden kubelet`.
func Command(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubelet",
		Short:         "Lint, render and edit kubelet configuration files",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.AddCommand(lintCommand(s), renderCommand(s), editCommand(s))
	return cmd
}
