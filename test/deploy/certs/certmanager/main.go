// Command certmanager runs cert-manager's own controllers and its CA injector
// against any API server, for tests. It is a module of its own, since
// cert-manager is built with other versions of Kubernetes' libraries than we.
//
// With --check it only reads manifests by cert-manager's own types, and says
// what does not fit them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"golang.org/x/sync/errgroup"

	// Importing a controller is how it becomes known.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

func main() {
	// A set of our own: libraries add flags of theirs to the global one.
	flags := flag.NewFlagSet("certmanager", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "who to be, and where")
	check := flags.Bool("check", false, "read the files that follow, strictly, and exit")
	_ = flags.Parse(os.Args[1:]) // exits by itself
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var err error
	if *check {
		err = checkFiles(flags.Args())
	} else {
		err = run(ctx, *kubeconfig)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "certmanager:", err)
		os.Exit(1)
	}
}

// run runs everything until ctx ends or a part gives up.
func run(ctx context.Context, kubeconfig string) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return issue(ctx, kubeconfig) })
	parts.Go(func() error { return inject(ctx, kubeconfig) })
	return parts.Wait()
}

// workers is how many objects a controller looks at at one time.
const workers = 2

// issue runs the controllers that make certificates.
func issue(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig: kubeconfig, KubernetesAPIQPS: 50, KubernetesAPIBurst: 100,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	informers, err := factory.Build()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	failed := make(chan error, len(controller.Known()))
	for name, build := range controller.Known() {
		c, err := build(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running.Go(func() {
			if err := c.Run(workers, ctx); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	informers.SharedInformerFactory.Start(ctx.Done())
	informers.KubeSharedInformerFactory.Start(ctx.Done())
	informers.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	select {
	case err = <-failed:
		return err
	case <-ctx.Done():
		running.Wait()
		return nil
	}
}
