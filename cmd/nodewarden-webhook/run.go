package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/webhook"
	"github.com/nodewarden/nodewarden/webhook/config"
	"github.com/nodewarden/nodewarden/webhook/freshness"
)

const (
	name  = "nodewarden-webhook"
	about = "nodewarden-webhook judges writes to the Ready condition of Nodes for the API server, by the contract of KEP-6371."
)

// flags is the command line.
type flags struct {
	*boot.Flags
	webhook.Options
	config      string
	printConfig bool
	nodes       nodeFlags
	certs       certFlags
}

func newFlags(fs *pflag.FlagSet) *flags {
	f := &flags{Flags: boot.NewFlags(fs, name, about), Options: webhook.DefaultOptions(contract.Policy{})}
	fs.StringVar(&f.config, "config", "", "Policy file (kind WebhookConfiguration). Without one, the default policy warns and refuses nothing.")
	fs.BoolVar(&f.printConfig, "print-config", false, "Print the policy with every default filled in, and exit.")
	fs.StringVar(&f.Address, "bind-address", f.Address, "Address of "+webhook.Path+", host:port. An empty host is every address.")
	fs.StringVar(&f.Files.Certificate, "tls-cert-file", "", "PEM file of the serving certificate and its chain. Followed when it changes.")
	fs.StringVar(&f.Files.Key, "tls-private-key-file", "", "PEM file of the certificate's private key. Followed when it changes.")
	fs.StringVar(&f.Files.ClientCA, "client-ca-file", "", "PEM file of the CAs that sign the API servers' client certificates. Without one, anybody may ask.")
	fs.BoolVar(&f.HTTP2, "http2", f.HTTP2, "Offer HTTP/2 beside HTTP/1.1.")
	fs.DurationVar(&f.Drain, "drain", f.Drain, "How long to keep answering after SIGTERM, not ready any more, until every API server has moved on.")
	f.nodes.add(fs)
	f.certs.add(fs)
	fs.IntVar(&f.MaxInFlight, "max-in-flight", f.MaxInFlight, "How many reviews to answer at one time. More are turned away with 503.")
	return f
}

// problems is everything wrong with the values of the flags. A certificate is
// asked for only where the server is going to run.
func (f *flags) problems() field.ErrorList {
	if f.printConfig {
		return nil
	}
	return append(f.Options.Validate(), f.certs.problems()...)
}

// run is the program: it serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f := newFlags(fs)
	if err := f.Parse(fs, args, out, f.problems); err != nil {
		if errors.Is(err, boot.ErrDone) {
			return nil
		}
		return err
	}
	policy, err := config.Load(f.config)
	if err != nil {
		return err
	}
	if f.printConfig {
		return printConfig(out, policy)
	}
	if err := f.StartLogs(); err != nil {
		return err
	}
	f.Policy, f.LivenessSource = policy.Policy(), string(policy.LivenessSource)
	f.nodes.stalled = policy.Stalled
	return serve(ctx, f)
}

func printConfig(out io.Writer, c *config.WebhookConfiguration) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// serve runs the webhook, and beside it the watch of nodes, its certificates,
// health and metrics, until it has stopped.
func serve(ctx context.Context, f *flags) error {
	registry := boot.NewRegistry()
	watch, err := f.nodes.watch(registry)
	if err != nil {
		return err
	}
	keeper, err := f.certs.keeper(f.Files, f.nodes.apiServer, registry)
	if err != nil {
		return err
	}
	observed, err := boot.Listen(f.MetricsAddress)
	if err != nil {
		return err
	}
	server, err := webhook.New(f.Options, registry, klog.Background())
	if err != nil {
		return errors.Join(err, observed.Close())
	}
	var all errgroup.Group
	observing, stop := context.WithCancel(context.Background())
	serving, fail := context.WithCancel(ctx)
	all.Go(func() error {
		defer fail()
		return observed.Serve(observing, boot.Endpoints(ready(server, watch), registry))
	})
	all.Go(func() error {
		defer stop()
		return server.Run(serving)
	})
	if watch != nil {
		all.Go(func() error { return watch.Run(observing) })
	}
	if keeper != nil {
		all.Go(func() error { keeper.Run(observing); return nil })
	}
	return all.Wait()
}

// ready says why no reviews should be sent here. Nodes that are not listed yet
// are a reason for a short while only.
func ready(server *webhook.Server, watch *freshness.Watch) func(context.Context) error {
	return func(ctx context.Context) error {
		err := server.Ready(ctx)
		if err == nil && watch != nil {
			err = watch.Ready()
		}
		return err
	}
}
