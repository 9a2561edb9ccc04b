package main

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/nodewarden/nodewarden/webhook"
	"github.com/nodewarden/nodewarden/webhook/certs"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// certFlags say whether the webhook keeps its own certificates.
type certFlags struct{ certs.Options }

func (f *certFlags) add(set *pflag.FlagSet) {
	f.Options = certs.DefaultOptions()
	set.StringVar(&f.Secret, "self-managed-cert-secret", "", "Secret, as namespace/name, in which the replicas keep their own certificate authority and serving certificate, where no cert-manager does. The files of --tls-cert-file and --tls-private-key-file are then written by this process, into a folder that must exist. Needs get, watch, patch and create of that Secret.")
	set.StringSliceVar(&f.Names, "self-managed-cert-names", nil, "DNS names and IP addresses by which API servers call the webhook, such as nodewarden-webhook.nodewarden-system.svc.")
	set.DurationVar(&f.Lifetime, "self-managed-cert-lifetime", f.Lifetime, "How long a self-managed certificate lasts, from 1h to 87600h, which is ten years. It is renewed when a third of that is left; its authority lasts four times as long.")
	set.StringVar(&f.Configuration, "webhook-configuration", policy.ConfigurationName, "ValidatingWebhookConfiguration whose entries get the authorities of --self-managed-cert-secret as caBundle. Needs get, watch and patch of it.")
}

// minCertLifetime leaves time to notice a renewal that does not come to pass.
const minCertLifetime = time.Hour

func (f *certFlags) on() bool { return f.Secret != "" }

// problems is everything wrong with the values of the flags.
func (f *certFlags) problems() field.ErrorList {
	if f.on() {
		errs := f.Validate()
		if f.Lifetime < minCertLifetime || f.Lifetime > certs.MaxLifetime {
			narrower := certs.BadLifetime(f.Lifetime, minCertLifetime)
			errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Field == narrower.Field })
			errs = append(errs, narrower)
		}
		return errs
	}
	if len(f.Names) > 0 {
		return field.ErrorList{field.Forbidden(field.NewPath("self-managed-cert-names"), "may be set only together with --self-managed-cert-secret")}
	}
	return nil
}

// keeper returns who keeps the certificates in files; nil where somebody else does.
func (f *certFlags) keeper(files webhook.CertificateFiles, apiServer func() (*rest.Config, error), r prometheus.Registerer) (*certs.Keeper, error) {
	if !f.on() {
		return nil, nil
	}
	config, err := apiServer()
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, errors.New("--self-managed-cert-secret: neither --kubeconfig nor a service account leads to an API server")
	}
	o := f.Options
	o.Certificate, o.Key = files.Certificate, files.Key
	return certs.New(o, rest.AddUserAgent(config, name), r, klog.Background())
}
