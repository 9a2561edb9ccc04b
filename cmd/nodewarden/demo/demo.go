// Package demo plays nodewarden's main job on a control plane that it starts
// itself: real requests, real answers, on screen. It ends by itself, or stays
// up for somebody to try things by hand.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Command is "nodewarden demo".
func Command() *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a real control plane and watch it refuse a bad detector's writes",
		Long: "Starts etcd, kube-apiserver and three kubelets on this machine (built from source the first time, which takes minutes), " +
			"puts the webhook in front of them and plays what a detector can do wrong, and right. " +
			"Run it in a clone of the repository. It exits with 0 when everything was as it should be, and with 3 when anything was not.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return Run(ctx, Options{Keep: keep, Out: cmd.OutOrStdout(), Progress: cmd.ErrOrStderr()})
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave everything running at the end, until interrupted")
	return cmd
}

// errInterrupted is all that there is to say of a demo that was cut short.
var errInterrupted = errors.New("interrupted before the end of the story")

// Options say how the demo runs.
type Options struct {
	// Keep leaves everything running at the end, until ctx ends.
	Keep bool
	// Out receives the story, Progress the progress of a first build.
	Out, Progress io.Writer
}

// Run plays the demo. It returns an error when any step was not as it should be.
func Run(ctx context.Context, o Options) error {
	s, err := raise(ctx, o)
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	defer s.end()
	for _, step := range s.steps() {
		s.title(step.title)
		if err := step.play(ctx); err != nil {
			if ctx.Err() != nil {
				return errInterrupted
			}
			s.say("NOT as it should be: %v", err)
			s.lastWords(ctx)
			return fmt.Errorf("step %d, %s: %w", s.step, step.title, err)
		}
	}
	s.blank()
	s.say("Everything was as it should be.")
	if o.Keep {
		return s.stay(ctx)
	}
	return nil
}
