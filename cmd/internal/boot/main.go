package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/logs"
)

// Exit codes of every server.
const (
	exitDone  = 0
	exitFault = 1
	exitUsage = 2
)

// Program is a server's main, without the process around it.
type Program struct {
	// Name is the name of the binary.
	Name string
	// Run works until it is done or ctx ends. It writes what was asked for to
	// out; everything else is logged or returned.
	Run func(ctx context.Context, args []string, out io.Writer) error
}

// Main runs p as this process and exits: 0 when it was done or told to stop,
// 2 when it was called wrongly, else 1. The first SIGTERM or SIGINT ends ctx,
// a second one the process.
func Main(p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := p.Run(ctx, os.Args[1:], os.Stdout)
	logs.FlushLogs()
	os.Exit(Report(os.Stderr, p.Name, err))
}

// Report tells of err and returns the exit code for it.
func Report(to io.Writer, name string, err error) int {
	var usage UsageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		for _, problem := range usage.Problems {
			fmt.Fprintf(to, "%s: %s\n", name, problem)
		}
		fmt.Fprintf(to, "%s: run it with --help to see every flag\n", name)
		return exitUsage
	default:
		fmt.Fprintf(to, "%s: %v\n", name, err)
		return exitFault
	}
}
