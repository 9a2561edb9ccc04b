package certs

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// desk is a Keeper on a real API server, with a clock and a line of its own.
type desk struct {
	*testing.T
	*Keeper
	line *line
	// admin does the same by hand, over a line that never fails.
	admin *cluster
	time  *clocktesting.FakeClock
}

// line is what a Keeper's requests go over.
type line struct {
	http.RoundTripper
	// patched counts the writes to the configuration.
	patched int
	// cut says which requests get lost, slow is called after each patch.
	cut  func(*http.Request) bool
	slow func()
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.cut(r) {
		return nil, errors.New("away")
	}
	answer, err := l.RoundTripper.RoundTrip(r)
	if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "validatingwebhookconfigurations") {
		l.patched++
		l.slow()
	}
	return answer, err
}

// newDesk makes an empty Secret and a configuration without a bundle, both by
// that name.
func newDesk(t *testing.T, cp *controlplane.ControlPlane, name string) *desk {
	t.Helper()
	o, dir := DefaultOptions(), t.TempDir()
	o.Secret, o.Configuration, o.Names = "default/"+name, name, usual.names
	o.Certificate, o.Key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	d := &desk{T: t, time: clocktesting.NewFakeClock(noon), line: &line{cut: func(*http.Request) bool { return false }, slow: func() {}}}
	config := cp.Admin()
	config.QPS = -1
	admin, err := newCluster(config, o)
	if err != nil {
		t.Fatal(err)
	}
	d.admin = admin
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { d.line.RoundTripper = next; return d.line })
	if d.Keeper, err = newKeeper(o, config, prometheus.NewRegistry(), logr.Discard(), d.time); err != nil {
		t.Fatal(err)
	}
	_, err = admin.secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	url, none := "https://127.0.0.1/validate", admissionv1.SideEffectClassNone
	v := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, entry := range []string{"a.b.c", "d.e.f"} {
		v.Webhooks = append(v.Webhooks, admissionv1.ValidatingWebhook{
			Name: entry, ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		})
	}
	_, also := admin.configurations.Create(t.Context(), v, metav1.CreateOptions{})
	if err = errors.Join(err, also); err != nil {
		t.Fatal(err)
	}
	return d
}

// looks once, which must not fail.
func (d *desk) looks() next {
	d.Helper()
	n, err := d.once(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return n
}

// settles looks until everything is in step, and a day later once more.
func (d *desk) settles() {
	d.Helper()
	d.looks()
	d.time.Step(24 * time.Hour)
	d.looks()
	if !d.inStepNow() {
		d.Fatal("not in step after a day")
	}
}

func (d *desk) inStepNow() bool {
	return testutil.ToFloat64(d.metrics.lastSync) == float64(d.time.Now().Unix())
}

func (d *desk) secret() held {
	d.Helper()
	s, err := d.admin.readSecret(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return read(s.Data)
}

// edit changes the Secret by hand.
func (d *desk) edit(change func(data map[string][]byte)) {
	d.Helper()
	s, err := d.admin.readSecret(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	change(s.Data)
	if _, err := d.admin.secrets.Update(d.Context(), s, metav1.UpdateOptions{}); err != nil {
		d.Fatal(err)
	}
}

// reset takes the bundle out of the configuration, as a tool does that knows
// nothing of it.
func (d *desk) reset() {
	d.Helper()
	c, err := d.admin.readConfiguration(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = nil
	}
	if _, err := d.admin.configurations.Update(d.Context(), c, metav1.UpdateOptions{}); err != nil {
		d.Fatal(err)
	}
}

// TestKeeping has one API server for all that a Keeper does at a desk.
func TestKeeping(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	for name, test := range map[string]func(*desk){
		"in step is what was found in its place":                         inStepIsWhatWasFound,
		"a quarrel over at once is slow and not in step":                 quarrelling(time.Millisecond),
		"a quarrel over every ten seconds is slow and not in step":       quarrelling(10 * time.Second),
		"a quarrel over every minute is slow and not in step":            quarrelling(time.Minute),
		"an authority settles once the write is over":                    settlesAfterTheWrite,
		"an authority that cannot be announced is not shown":             staysUnshownUntilAnnounced,
		"what is not known to be announced any more is not shown either": isForgottenWhenUnread,
	} {
		t.Run(name, func(t *testing.T) {
			test(newDesk(t, cp, strings.ReplaceAll(strings.ToLower(name), " ", "-")))
		})
	}
}

func inStepIsWhatWasFound(d *desk) {
	if n := d.looks(); d.inStepNow() || n != (next{firstRetry, true}) {
		d.Errorf("the bundle was put in a moment ago, in step is %t, looks again %+v", d.inStepNow(), n)
	}
	d.time.Step(firstRetry)
	if n := d.looks(); !d.inStepNow() || n != (next{pause: resync}) {
		d.Errorf("the bundle was found in its place, in step is %t, looks again %+v", d.inStepNow(), n)
	}
	d.time.Step(time.Hour)
	d.reset()
	if d.looks(); d.inStepNow() {
		d.Error("in step although the bundle was not in its place")
	}
	d.time.Step(firstRetry)
	if d.looks(); !d.inStepNow() {
		d.Error("not in step, although it was taken out only once")
	}
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	for range 2 {
		d.time.Step(time.Second)
		if d.looks(); d.inStepNow() {
			d.Error("in step although a certificate waits to be shown")
		}
	}
	d.time.Step(d.options.Settle)
	if d.looks(); !d.inStepNow() {
		d.Error("not in step although everything is")
	}
}

// quarrelling has another tool take the bundle out again and again, so long
// after it was put in, and counts what an API server would see in two hours.
func quarrelling(every time.Duration) func(*desk) {
	return func(d *desk) {
		d.settles()
		began, before := d.time.Now(), d.line.patched
		var lastInStep time.Time
		out := began // when the bundle is to be taken out next
		for d.time.Since(began) < 2*time.Hour && d.line.patched < 500 {
			if !d.time.Now().Before(out) {
				d.reset()
				out = began.Add(24 * time.Hour)
			}
			was := d.line.patched
			n := d.looks()
			if d.inStepNow() {
				lastInStep = d.time.Now()
			}
			if d.line.patched > was {
				out = d.time.Now().Add(every)
			}
			until := d.time.Now().Add(n.pause)
			if out.Before(until) && !n.waitedOut {
				until = out
			}
			d.time.SetTime(until)
		}
		if n := d.line.patched - before; n < 60 || n > 2*130 {
			d.Errorf("%d patches in two hours, want some, and not many more than 120 an hour", n)
		}
		if !lastInStep.IsZero() && lastInStep.Sub(began) > 10*time.Minute {
			d.Errorf("called in step after %s", lastInStep.Sub(began))
		}
		d.time.Step(calm)
		d.looks()
		d.time.Step(calm)
		if d.looks(); !d.inStepNow() {
			d.Error("not in step although the other tool gave up")
		}
	}
}

func TestAQuarrelIsAboutOneBundle(t *testing.T) {
	var q quarrel
	for i, c := range []struct {
		after         time.Duration
		bundle        string
		pause, lasted time.Duration
	}{
		{0, "one", firstRetry, 0},
		{time.Second, "two", firstRetry, 0}, // ours was replaced by another of ours
		{time.Second, "two", 2 * firstRetry, calm},
		{time.Second, "two", 4 * firstRetry, calm},
		{calm, "two", firstRetry, 0}, // it stood for long enough
		{time.Second, "two", 2 * firstRetry, calm},
		{time.Second, "three", firstRetry, 0},
	} {
		now := q.last.Add(c.after)
		if i == 0 {
			now = noon
		}
		if pause := q.put([]byte(c.bundle), now); pause != c.pause || q.lasts(now) != c.lasted {
			t.Errorf("put %d: pause %s, lasts %s; want %s and %s", i, pause, q.lasts(now), c.pause, c.lasted)
		}
	}
}

// settlesAfterTheWrite counts from its end: a request may take longer than the
// time to settle.
func settlesAfterTheWrite(d *desk) {
	d.settles()
	old := d.files.shown()
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	d.line.slow = func() { d.time.Step(25 * time.Second) }
	d.looks()
	if !d.files.shown().Equal(old) {
		d.Fatal("a certificate of the new authority is shown at once")
	}
	d.time.Step(d.options.Settle - time.Second)
	if n := d.looks(); !d.files.shown().Equal(old) || n != (next{pause: time.Second}) {
		d.Fatalf("nine seconds later it is shown, or looked for again %+v", n)
	}
	d.time.Step(time.Second)
	if d.looks(); !d.files.shown().Equal(d.secret().leaf) {
		d.Error("after ten seconds it is not shown")
	}
}

func unreadable(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "validatingwebhookconfigurations")
}

// fails looks once, which must fail.
func (d *desk) fails() {
	d.Helper()
	if _, err := d.once(d.Context()); err == nil {
		d.Fatal("no error about a configuration that cannot be read")
	}
}

// staysUnshownUntilAnnounced has the configuration unreadable just when there
// is a new authority: what is known of the one before says nothing about it.
func staysUnshownUntilAnnounced(d *desk) {
	d.settles()
	old, all := d.files.shown(), d.line.cut
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	d.line.cut = unreadable
	for range 5 {
		d.fails()
		if d.secret().leaf.Equal(old) || !d.files.shown().Equal(old) {
			d.Fatal("there is no new certificate, or it is shown before its authority was announced")
		}
		d.time.Step(time.Minute)
	}
	d.line.cut = all
	if d.looks(); !d.files.shown().Equal(old) {
		d.Error("shown as soon as its authority was announced")
	}
}

// isForgottenWhenUnread has the configuration unreadable while an authority
// settles: it may have been taken out meanwhile.
func isForgottenWhenUnread(d *desk) {
	d.settles()
	old, all := d.files.shown(), d.line.cut
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	d.looks()
	d.time.Step(d.options.Settle - time.Second)
	d.line.cut = unreadable
	d.fails()
	d.time.Step(time.Second)
	d.line.cut = all
	if d.looks(); !d.files.shown().Equal(old) {
		d.Error("shown although for a while nobody knew what the configuration held")
	}
	d.time.Step(d.options.Settle)
	if d.looks(); d.files.shown().Equal(old) {
		d.Error("never shown")
	}
}

// TestAFailureIsWaitedOut has every request fail, and changes heard of all the
// time, on time that passes only when everybody waits: none may hurry anybody.
func TestAFailureIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		away := &line{cut: func(r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/secrets/tls") && r.Method == http.MethodGet {
				tries++
			}
			return true
		}}
		o := DefaultOptions()
		o.Secret, o.Configuration, o.Names = "system/tls", "contract", usual.names
		k, err := newKeeper(o, &rest.Config{Host: "http://localhost", Transport: away}, prometheus.NewRegistry(), logr.Discard(), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		var changing sync.WaitGroup
		changing.Go(func() {
			for ctx.Err() == nil {
				k.awake()
				<-k.clock.After(time.Second)
			}
		})
		k.Run(ctx)
		changing.Wait()
		if tries < 110 || tries > 135 {
			t.Errorf("%d tries in an hour, want one every %s", tries, lastRetry)
		}
	})
}

// TestAWatchThatBeginsWakes is about what was deleted since the one before was
// lost: a watch tells what there is, and nothing of what there was.
func TestAWatchThatBeginsWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Keeper{clock: clock.RealClock{}, wake: make(chan struct{}, 1), log: logr.Discard()}
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan *watch.FakeWatcher)
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.follow(ctx, func(context.Context) (watch.Interface, error) {
				w := watch.NewFake()
				select {
				case begun <- w:
				case <-ctx.Done():
				}
				return w, ctx.Err()
			})
		}()
		woken := func() bool {
			synctest.Wait()
			select {
			case <-k.wake:
				return true
			default:
				return false
			}
		}
		for range 3 {
			w := <-begun
			if !woken() {
				t.Error("nobody was woken when a watch began")
			}
			w.Modify(&corev1.Secret{})
			if !woken() {
				t.Error("nobody was woken at a change")
			}
			w.Stop()
			woken() // or not: what counts is the next one
		}
		stop()
		<-done
	})
}
