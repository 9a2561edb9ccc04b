package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Keeper keeps one Secret, one webhook configuration and the server's files in
// step. Any number may keep the same.
type Keeper struct {
	options Options
	want    want
	cluster *cluster
	files   files
	metrics *metrics
	log     logr.Logger
	clock   clock.Clock
	wake    chan struct{}

	// announced is since when this process knows the authority by that name to
	// be in the configuration.
	announced     time.Time
	announcedName string
}

// New returns a Keeper that does nothing until Run. Its metrics are registered
// with r.
func New(o Options, config *rest.Config, r prometheus.Registerer, log logr.Logger) (*Keeper, error) {
	if errs := o.Validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return newKeeper(o, config, r, log, clock.RealClock{})
}

func newKeeper(o Options, config *rest.Config, r prometheus.Registerer, log logr.Logger, c clock.Clock) (*Keeper, error) {
	cluster, err := newCluster(config, o)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		options: o, want: o.want(), cluster: cluster, files: files{o.Certificate, o.Key},
		metrics: newMetrics(r), log: log, clock: c, wake: make(chan struct{}, 1),
	}, nil
}

const (
	// resync is how often everything is looked at although nothing was heard.
	resync = 10 * time.Minute
	// attempt bounds one look, requests included.
	attempt = 30 * time.Second
	// firstRetry doubles with each failure up to lastRetry.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Run keeps everything in step until ctx ends. What fails is tried again: the
// API server may be away, and a right may be granted late.
func (k *Keeper) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { k.follow(ctx, k.cluster.watchSecret) })
	watching.Go(func() { k.follow(ctx, k.cluster.watchConfiguration) })
	retry := firstRetry
	for {
		pause, err := k.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case overtaken(err):
			k.log.V(1).Info("another replica was faster", "error", err.Error())
			pause, retry = firstRetry, firstRetry
		case err != nil:
			k.metrics.failed()
			k.log.Error(err, "cannot keep the certificates in step", "retryIn", retry.String())
			pause, retry = retry, min(2*retry, lastRetry)
		default:
			retry = firstRetry
		}
		if !k.rest(ctx, pause) {
			return
		}
	}
}

// rest returns after pause or, unless a failure is waited out, at a change. It
// says whether to go on.
func (k *Keeper) rest(ctx context.Context, pause time.Duration) bool {
	timer := k.clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-k.wake:
	case <-timer.C():
	}
	return true
}

// follow wakes the keeper at every change, and once more whenever a watch was
// lost: what happened in between is not told.
func (k *Keeper) follow(ctx context.Context, begin func(context.Context) (watch.Interface, error)) {
	for ctx.Err() == nil {
		w, err := begin(ctx)
		if err != nil {
			k.log.V(1).Info("cannot watch", "error", err.Error())
		} else {
			for range w.ResultChan() {
				k.awake()
			}
			k.awake()
		}
		select {
		case <-ctx.Done():
		case <-k.clock.After(time.Second):
		}
	}
}

func (k *Keeper) awake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *Keeper) once(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return k.look(ctx, k.clock.Now())
}

// look brings everything in step, and returns when to look again.
func (k *Keeper) look(ctx context.Context, now time.Time) (time.Duration, error) {
	// A configuration that cannot be read is no reason to let a certificate expire.
	configuration, unread := k.cluster.readConfiguration(ctx)
	data, err := k.keepSecret(ctx, now, trusted(configuration))
	if err != nil {
		return 0, errors.Join(err, unread)
	}
	h := read(data)
	unannounced := unread
	if unread == nil {
		unannounced = k.keepConfiguration(ctx, now, configuration, data[bundleKey], h.authorities[0])
	} else {
		k.announced = time.Time{}
	}
	wait, err := k.handOver(h, data, now)
	if err = errors.Join(err, unannounced); err != nil {
		return 0, err
	}
	k.metrics.inStep(now, h.authorities[0].NotAfter)
	due := max(0, h.dueAfter(k.want, now).Sub(now)+time.Second)
	if wait > 0 {
		due = min(due, wait)
	}
	return min(due, resync), nil
}

// keepSecret gives the Secret what it lacks and returns what it then holds.
func (k *Keeper) keepSecret(ctx context.Context, now time.Time, known []*x509.Certificate) (map[string][]byte, error) {
	secret, err := k.cluster.readSecret(ctx)
	if err != nil {
		return nil, err
	}
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	h := read(data)
	p := decide(h, k.want, now)
	if !p.asks() {
		return data, nil
	}
	next, err := p.carryOut(h, known, k.want, now)
	if err != nil {
		return nil, err
	}
	if secret, err = k.cluster.writeSecret(ctx, secret, next); err != nil {
		return nil, err
	}
	k.log.Info("renewed the certificates in the Secret", "secret", k.options.Secret, "because", p.reason(),
		"newAuthority", p.newAuthority != "", "newCertificate", p.newLeaf != "")
	return secret.Data, nil
}

// keepConfiguration announces the bundle and remembers since when it is known.
func (k *Keeper) keepConfiguration(ctx context.Context, now time.Time, c *admissionv1.ValidatingWebhookConfiguration, bundle []byte, newest *x509.Certificate) error {
	name := newest.SerialNumber.String()
	if c != nil && !holds(c, newest) || name != k.announcedName {
		k.announced, k.announcedName = time.Time{}, name
	}
	if c != nil {
		changed, err := k.cluster.announce(ctx, c, bundle)
		if err != nil {
			return err
		}
		if changed {
			k.log.Info("announced the bundle", "configuration", k.options.Configuration)
		}
	}
	if k.announced.IsZero() {
		k.announced = now
	}
	return nil
}

// handOver gives the server the certificate in the Secret, as soon as API
// servers will believe it. It returns how long that takes.
func (k *Keeper) handOver(h held, data map[string][]byte, now time.Time) (time.Duration, error) {
	shown := k.files.shown()
	if shown != nil && shown.Equal(h.leaf) {
		return 0, nil
	}
	wait := handover{shown, h.leaf, h.authorities, k.announced, k.options.Settle, k.want.lifetime}.wait(now)
	if wait > 0 {
		k.log.V(1).Info("the new certificate waits for the API servers to hear of its authority", "for", wait.String())
		return wait, nil
	}
	if err := k.files.write(data[leafKey], data[leafKeyKey]); err != nil {
		return 0, err
	}
	k.log.Info("handed a certificate to the server", "expires", h.leaf.NotAfter.UTC().Format(time.RFC3339))
	return 0, nil
}
