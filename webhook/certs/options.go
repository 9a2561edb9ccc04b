package certs

import (
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// Options is everything a Keeper is made of. Start from DefaultOptions.
type Options struct {
	// Secret keeps the authority and the certificate, as namespace/name. It
	// need not exist.
	Secret string
	// Configuration names the ValidatingWebhookConfiguration whose entries get
	// the bundle. It need not exist.
	Configuration string
	// Names are what API servers call the webhook: DNS names and IP addresses.
	Names []string
	// Lifetime is of a serving certificate, which is renewed when a third of it
	// is left. Its authority lives four times as long.
	Lifetime time.Duration
	// Certificate and Key are the files to write, for the server that follows
	// them. One name for both makes one file of both.
	Certificate, Key string
	// Settle is how long API servers may take to notice a changed configuration.
	// For so long after an authority was announced nobody shows a certificate
	// of it, if there is another to show.
	Settle time.Duration
}

// The defaults of an untouched install.
const (
	DefaultLifetime = 90 * 24 * time.Hour
	DefaultSettle   = 10 * time.Second
)

// DefaultOptions returns options that lack only names and places.
func DefaultOptions() Options { return Options{Lifetime: DefaultLifetime, Settle: DefaultSettle} }

// minLifetime is what certificates can express: they count whole seconds. In a
// cluster nothing below an hour makes sense, for a renewal that does not come
// to pass must be noticed in time.
const minLifetime = 3 * time.Second

// MaxLifetime keeps the life of an authority, and sums with it, far from what a
// duration can hold, which is 292 years.
const MaxLifetime = 10 * 365 * 24 * time.Hour

// Validate returns everything wrong with o. Paths are the names of the flags
// that set the options.
func (o Options) Validate() field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("self-managed-cert-secret")
	namespace, name, found := strings.Cut(o.Secret, "/")
	switch {
	case !found:
		errs = append(errs, field.Invalid(path, o.Secret, "want namespace/name, such as nodewarden-system/nodewarden-webhook-tls"))
	default:
		errs = append(errs, valid(path, namespace, validation.ValidateNamespaceName)...)
		errs = append(errs, valid(path, name, validation.NameIsDNSSubdomain)...)
	}
	errs = append(errs, valid(field.NewPath("webhook-configuration"), o.Configuration, validation.NameIsDNSSubdomain)...)
	errs = append(errs, o.validateNames()...)
	if o.Lifetime < minLifetime || o.Lifetime > MaxLifetime {
		errs = append(errs, BadLifetime(o.Lifetime, minLifetime))
	}
	return errs
}

// BadLifetime is the error about a lifetime outside of the range that begins
// with least: programs may ask for more than certificates do.
func BadLifetime(lifetime, least time.Duration) *field.Error {
	return field.Invalid(field.NewPath("self-managed-cert-lifetime"), lifetime.String(),
		fmt.Sprintf("want a duration from %s to %s, which is ten years", least, MaxLifetime))
}

func valid(path *field.Path, name string, check func(string, bool) []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range check(name, false) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func (o Options) validateNames() field.ErrorList {
	path := field.NewPath("self-managed-cert-names")
	if len(o.Names) == 0 {
		return field.ErrorList{field.Required(path, "name what API servers call the webhook, such as nodewarden-webhook.nodewarden-system.svc")}
	}
	var errs field.ErrorList
	for _, name := range o.Names {
		if net.ParseIP(name) != nil {
			continue
		}
		for _, problem := range utilvalidation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(path, name, "is neither an IP address nor a DNS name: "+problem))
		}
	}
	return errs
}

// want returns what the Secret should hold, names in the form that
// certificates give back.
func (o Options) want() want {
	w := want{lifetime: o.Lifetime}
	for _, name := range o.Names {
		if ip := net.ParseIP(name); ip != nil {
			name = ip.String()
		}
		w.names = union(w.names, []string{name})
	}
	return w
}
