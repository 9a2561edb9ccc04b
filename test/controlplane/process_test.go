package controlplane_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

func TestAProgramOfOursRunsWithItsOutputKept(t *testing.T) {
	cp, ctx := shared(t)
	p, err := cp.Run(ctx, controlplane.Command{
		Name: "speaker", Path: "/bin/sh", Args: []string{"-c", `echo "$GREETING"; echo three >&2; exit 3`}, Env: []string{"GREETING=one\ntwo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || p.ExitCode() != 3 {
		t.Errorf("it ended with %d, %v", p.ExitCode(), err)
	}
	if got := p.Tail(2); got != "two\nthree" {
		t.Errorf("it wrote last %q", got)
	}
	again, err := cp.Run(ctx, controlplane.Command{Name: "speaker", Path: "/bin/true"})
	if err != nil || again.Name != "speaker-2" || again.LogFile == p.LogFile {
		t.Errorf("the second of that name is %s, %v", again.Name, err)
	}
}

func TestAProgramThatEndsBeforeItIsReadySaysWhatItWrote(t *testing.T) {
	cp, ctx := shared(t)
	_, err := cp.Run(ctx, controlplane.Command{
		Path: "/bin/sh", Args: []string{"-c", "echo out of luck; exit 7"},
		Ready: func(context.Context) error { return errors.New("not yet") },
	})
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("%v", err)
	}
}

func TestAProgramThatHasEndedIsNotReadyWhoeverAnswersInItsPlace(t *testing.T) {
	cp, ctx := shared(t)
	_, err := cp.Run(ctx, controlplane.Command{
		Path: "/bin/sh", Args: []string{"-c", "exit 7"},
		Ready: func(untilItEnds context.Context) error { <-untilItEnds.Done(); return nil },
	})
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("%v", err)
	}
}

func TestAProgramThatHangsIsNotWaitedForLongerThanTheCallerDoes(t *testing.T) {
	cp, ctx := shared(t)
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := cp.Run(ctx, controlplane.Command{
		Path: "/bin/sleep", Args: []string{"1000"},
		Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	if err == nil || !strings.Contains(err.Error(), "not ready in time") {
		t.Errorf("%v", err)
	}
}

func TestSignalsReachAProgramAndStopEndsOneThatWasFrozen(t *testing.T) {
	cp, ctx := shared(t)
	p, err := cp.Run(ctx, controlplane.Command{Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.State() != "running" {
		t.Errorf("it is %s", p.State())
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p.Stop()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("stopping it took %s", took)
	}
	if p.State() == "running" {
		t.Error("it still runs")
	}
	p.Kill() // a process that is gone can be stopped and killed again
	p.Stop()
}

func TestUsageGrowsWithWork(t *testing.T) {
	cp, ctx := shared(t)
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	before, err := cp.APIServer().Usage()
	if err != nil {
		t.Fatal(err)
	}
	if before.RSS < 50<<20 || before.PeakRSS < before.RSS || before.CPU < 100*time.Millisecond {
		t.Errorf("an API server uses %+v", before)
	}
	eventually(ctx, t, func() error {
		if _, err := cp.Metrics(ctx); err != nil {
			return err
		}
		after, err := cp.APIServer().Usage()
		if err == nil && after.CPU <= before.CPU {
			err = errors.New("its CPU time stands still")
		}
		return err
	})
}

func TestTheAPIServerShowsItsMetrics(t *testing.T) {
	cp, ctx := shared(t)
	page, err := cp.Metrics(ctx)
	if err != nil || !strings.Contains(page, "apiserver_request_total{") {
		t.Errorf("%v, %d bytes", err, len(page))
	}
}
