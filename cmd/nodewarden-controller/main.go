// Command nodewarden-controller runs the node lifecycle of a cluster in place of,
// or beside, the node-lifecycle-controller of kube-controller-manager.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
	"github.com/nodewarden/nodewarden/controller"
)

const (
	name  = "nodewarden-controller"
	about = "Runs the node lifecycle: conditions, taints, labels and pod readiness of nodes that are down."
)

func main() { boot.Main(boot.Program{Name: name, Run: run}) }

// run serves until ctx ends, or until it is not the leader any more.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if errors.Is(err, boot.ErrDone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.flags.StartLogs(); err != nil {
		return fmt.Errorf("start logging: %w", err)
	}
	log.SetLogger(klog.NewKlogr())
	return serve(ctx, s)
}

func serve(ctx context.Context, s settings) error {
	listener, err := boot.Listen(s.flags.MetricsAddress)
	if err != nil {
		return err
	}
	server := controller.NewServerClock(clock.RealClock{}.Now)
	m, err := newManager(s, server)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	probes, err := controller.Setup(m, controller.Parts{
		Options: s.options, Clock: clock.RealClock{}, Server: server, Metrics: controller.NewMetrics(metrics.Registry),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- listener.Serve(ctx, endpoints(probes)); cancel() }()
	klog.InfoS("Starting", "version", boot.Version(), "source", s.config.NodeLivenessSource, "externalNodes", s.config.ExternalNodes, "mode", s.config.Mode)
	err = m.Start(ctx)
	cancel()
	return errors.Join(err, <-served)
}
