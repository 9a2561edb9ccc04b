package webhook

import (
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewarden/nodewarden/contract"
)

// Options is everything a Server is made of. Start from DefaultOptions.
type Options struct {
	// Policy decides; it does not change for the life of a Server.
	Policy contract.Policy
	// LivenessSource is who decides that a node is dead, as the policy file
	// declares it: kubelet or external. It labels the count of skew writes, so
	// that only where it is external an alert need fire.
	LivenessSource string
	// Address is where reviews arrive, host:port; an empty host is every address.
	Address string
	Files   CertificateFiles
	// HTTP2 offers HTTP/2 beside HTTP/1.1.
	HTTP2 bool
	// Drain is how long the server keeps answering after it was told to stop,
	// so that everybody has heard of it.
	Drain time.Duration
	// MaxInFlight bounds the reviews being answered at one time.
	MaxInFlight int
}

// The defaults of an untouched install.
const (
	DefaultAddress     = ":9443"
	DefaultDrain       = 10 * time.Second
	DefaultMaxInFlight = 128
)

// DefaultOptions returns the options of an untouched install that judges by p.
func DefaultOptions(p contract.Policy) Options {
	return Options{Policy: p, Address: DefaultAddress, Drain: DefaultDrain, MaxInFlight: DefaultMaxInFlight}
}

// maxDrain keeps a stop within what clusters grant a pod.
const maxDrain = 10 * time.Minute

// Validate returns everything wrong with o. Paths are the names of the flags
// that set the options.
func (o Options) Validate() field.ErrorList {
	var errs field.ErrorList
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("bind-address"), o.Address, "want host:port, such as "+DefaultAddress))
	}
	if o.Files.Certificate == "" {
		errs = append(errs, field.Required(field.NewPath("tls-cert-file"), "API servers call webhooks by HTTPS only; name the PEM file of the serving certificate"))
	}
	if o.Files.Key == "" {
		errs = append(errs, field.Required(field.NewPath("tls-private-key-file"), "name the PEM file of the certificate's private key"))
	}
	if o.Drain < 0 || o.Drain > maxDrain {
		errs = append(errs, field.Invalid(field.NewPath("drain"), o.Drain.String(), "want 0s to "+maxDrain.String()))
	}
	if o.MaxInFlight < 1 {
		errs = append(errs, field.Invalid(field.NewPath("max-in-flight"), o.MaxInFlight, "want at least 1"))
	}
	return errs
}
