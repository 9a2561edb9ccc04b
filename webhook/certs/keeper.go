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
	quarrel       quarrel
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
		n, err := k.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case overtaken(err):
			k.log.V(1).Info("another replica was faster", "error", err.Error())
			n, retry = next{firstRetry, true}, firstRetry
		case err != nil:
			k.metrics.failed()
			k.log.Error(err, "cannot keep the certificates in step", "retryIn", retry.String())
			n, retry = next{retry, true}, min(2*retry, lastRetry)
		default:
			retry = firstRetry
		}
		if !k.rest(ctx, n) {
			return
		}
	}
}

// next is when to look again: after a pause, or at a change before, unless the
// pause is there to slow down what changes call for.
type next struct {
	pause     time.Duration
	waitedOut bool
}

// rest returns when it is time for n. It says whether to go on.
func (k *Keeper) rest(ctx context.Context, n next) bool {
	timer := k.clock.NewTimer(n.pause)
	defer timer.Stop()
	wake := k.wake
	if n.waitedOut {
		wake = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C():
	}
	return true
}

// follow wakes the keeper at every change, and once more whenever a watch has
// begun: it tells what there is, and nothing of what was deleted before.
func (k *Keeper) follow(ctx context.Context, begin func(context.Context) (watch.Interface, error)) {
	for ctx.Err() == nil {
		w, err := begin(ctx)
		if err != nil {
			k.log.V(1).Info("cannot watch", "error", err.Error())
		} else {
			k.awake()
			for range w.ResultChan() {
				k.awake()
			}
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

func (k *Keeper) once(ctx context.Context) (next, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return k.look(ctx)
}

// look brings everything in step, and returns when to look again.
func (k *Keeper) look(ctx context.Context) (next, error) {
	// A configuration that cannot be read is no reason to let a certificate expire.
	configuration, unread := k.cluster.readConfiguration(ctx)
	data, err := k.keepSecret(ctx, k.clock.Now(), trusted(configuration))
	if err != nil {
		return next{}, errors.Join(err, unread)
	}
	h := read(data)
	k.metrics.authorityExpires(h.authorities[0].NotAfter)
	unannounced, changed := unread, false
	if unread == nil {
		changed, unannounced = k.keepConfiguration(ctx, configuration, data[bundleKey], h.authorities[0])
	} else {
		k.announced = time.Time{}
	}
	// Requests take their time: what follows goes by a new look at the clock.
	now := k.clock.Now()
	wait, err := k.handOver(h, data, now)
	if err = errors.Join(err, unannounced); err != nil {
		return next{}, err
	}
	if changed {
		// It counts as in its place when it was found there.
		return next{k.quarrel.put(data[bundleKey], now), true}, nil
	}
	return k.standing(h, wait, now), nil
}

// standing returns when to look again after nothing had to be put into the
// configuration, and notes whether everything is in step: with wait for a
// certificate to be shown, or a quarrel, it is not.
func (k *Keeper) standing(h held, wait time.Duration, now time.Time) next {
	pause := min(resync, max(0, h.dueAfter(k.want, now).Sub(now)+time.Second))
	inStep := true
	for _, d := range []time.Duration{wait, k.quarrel.lasts(now)} {
		if d > 0 {
			pause, inStep = min(pause, d), false
		}
	}
	if inStep {
		k.metrics.inStep(now)
	}
	return next{pause: pause}
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

// keepConfiguration announces the bundle, says whether it had to, and remembers
// since when the authority is known.
func (k *Keeper) keepConfiguration(ctx context.Context, c *admissionv1.ValidatingWebhookConfiguration, bundle []byte, newest *x509.Certificate) (changed bool, err error) {
	name := newest.SerialNumber.String()
	if c != nil && !holds(c, newest) || name != k.announcedName {
		k.announced, k.announcedName = time.Time{}, name
	}
	if c != nil {
		if changed, err = k.cluster.announce(ctx, c, bundle); err != nil {
			return false, err
		}
		if changed {
			k.log.Info("announced the bundle", "configuration", k.options.Configuration)
		}
	}
	if k.announced.IsZero() {
		k.announced = k.clock.Now()
	}
	return changed, nil
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
