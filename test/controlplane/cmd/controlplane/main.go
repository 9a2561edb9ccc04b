// Command controlplane builds, shows and runs the control plane that the tests
// use, for people.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

const usage = `usage: controlplane build|assets|up

build   build the binary if it is missing, and print its path
assets  print a folder to use as KUBEBUILDER_ASSETS
up      start a control plane with all controllers, print a kubeconfig, stay until interrupted`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) != 1 {
		return errors.New(usage)
	}
	switch args[0] {
	case "build":
		return show(out)(controlplane.Binary(ctx, progress))
	case "assets":
		return show(out)(controlplane.Assets(ctx, progress))
	case "up":
		return up(ctx, out, progress)
	}
	return fmt.Errorf("no command %q\n%s", args[0], usage)
}

func show(out io.Writer) func(string, error) error {
	return func(path string, err error) error {
		if err == nil {
			_, err = fmt.Fprintln(out, path)
		}
		return err
	}
}

func up(ctx context.Context, out, progress io.Writer) (err error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Progress: progress, ServiceAccountAdmission: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	if _, err := cp.StartControllerManager(ctx, controlplane.CMOptions{}); err != nil {
		return err
	}
	if _, err := cp.StartScheduler(ctx, controlplane.SchedulerOptions{}); err != nil {
		return err
	}
	if err := show(out)(cp.Kubeconfig(cp.Admin())); err != nil {
		return err
	}
	fmt.Fprintln(progress, "The control plane is up. Interrupt to end it.")
	<-ctx.Done()
	return nil
}
