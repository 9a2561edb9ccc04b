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

// ExitCode is the exit code for what a command returned: 0 all is well, 1
// there are findings, 2 the question could not be answered.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrFindings):
		return 1
	}
	return 2
}

// Command is `nodewarden kubelet`.
func Command(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubelet",
		Short:         "Lint, render and edit kubelet configuration files",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.AddCommand(lintCommand(s), renderCommand(s), editCommand(s))
	return cmd
}
