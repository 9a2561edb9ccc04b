package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// desk is a Keeper with a cluster and a clock of its own.
type desk struct {
	*testing.T
	*Keeper
	api  *fake.Clientset
	time *clocktesting.FakeClock
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, time: clocktesting.NewFakeClock(noon)}
	d.api = fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls", Namespace: "system"}, Type: corev1.SecretTypeTLS},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "contract"}, Webhooks: []admissionv1.ValidatingWebhook{{Name: "a.b.c"}, {Name: "d.e.f"}}},
	)
	d.Keeper = keeper(t, d.api, d.time)
	return d
}

func keeper(t *testing.T, api *fake.Clientset, c clock.Clock) *Keeper {
	t.Helper()
	o, dir := DefaultOptions(), t.TempDir()
	o.Secret, o.Configuration, o.Names = "system/tls", "contract", usual.names
	return &Keeper{
		options: o, want: o.want(), files: files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")},
		cluster: &cluster{
			secrets: api.CoreV1().Secrets("system"), configurations: api.AdmissionregistrationV1().ValidatingWebhookConfigurations(),
			namespace: "system", secret: "tls", configuration: "contract", creator: "test",
		},
		metrics: newMetrics(prometheus.NewRegistry()), log: logr.Discard(), clock: c, wake: make(chan struct{}, 1),
	}
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
	s, err := d.cluster.readSecret(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return read(s.Data)
}

// edit changes the Secret by hand.
func (d *desk) edit(change func(data map[string][]byte)) {
	d.Helper()
	s, err := d.cluster.readSecret(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	change(s.Data)
	if _, err := d.cluster.secrets.Update(d.Context(), s, metav1.UpdateOptions{}); err != nil {
		d.Fatal(err)
	}
}

// reset takes the bundle out of the configuration, as a tool does that knows
// nothing of it.
func (d *desk) reset() {
	d.Helper()
	c, err := d.cluster.readConfiguration(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = nil
	}
	if _, err := d.cluster.configurations.Update(d.Context(), c, metav1.UpdateOptions{}); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) patches(resource string) (n int) {
	for _, a := range d.api.Actions() {
		if a.Matches("patch", resource) {
			n++
		}
	}
	return n
}

func TestInStepIsWhatWasFoundInItsPlace(t *testing.T) {
	d := newDesk(t)
	if n := d.looks(); d.inStepNow() || n != (next{firstRetry, true}) {
		t.Errorf("the bundle was put in a moment ago, in step is %t, looks again %+v", d.inStepNow(), n)
	}
	d.time.Step(firstRetry)
	if n := d.looks(); !d.inStepNow() || n != (next{pause: resync}) {
		t.Errorf("the bundle was found in its place, in step is %t, looks again %+v", d.inStepNow(), n)
	}
	d.time.Step(time.Hour)
	d.reset()
	if d.looks(); d.inStepNow() {
		t.Error("in step although the bundle was not in its place")
	}
	d.time.Step(firstRetry)
	if d.looks(); !d.inStepNow() {
		t.Error("not in step, although it was taken out only once")
	}
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	for range 2 {
		d.time.Step(time.Second)
		if d.looks(); d.inStepNow() {
			t.Error("in step although a certificate waits to be shown")
		}
	}
	d.time.Step(d.options.Settle)
	if d.looks(); !d.inStepNow() {
		t.Error("not in step although everything is")
	}
}

// TestAQuarrelAboutTheBundleIsSlowAndNotInStep has another tool take the bundle
// out again and again, and counts what an API server would see in two hours.
func TestAQuarrelAboutTheBundleIsSlowAndNotInStep(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 10 * time.Second, time.Minute} {
		t.Run(fmt.Sprintf("%s after it was put in", every), func(t *testing.T) {
			d := newDesk(t)
			d.settles()
			began, before, last := d.time.Now(), d.patches("validatingwebhookconfigurations"), time.Time{}
			out := began // when the bundle is to be taken out next
			patches := 0
			for d.time.Since(began) < 2*time.Hour && patches < 500 {
				if !d.time.Now().Before(out) {
					d.reset()
					out = began.Add(time.Hour * 24)
				}
				was := patches
				n := d.looks()
				patches = d.patches("validatingwebhookconfigurations") - before
				if d.inStepNow() {
					last = d.time.Now()
				}
				if patches > was {
					out = d.time.Now().Add(every)
				}
				until := d.time.Now().Add(n.pause)
				if out.Before(until) && !n.waitedOut {
					until = out
				}
				d.time.SetTime(until)
			}
			if patches < 60 || patches > 2*130 {
				t.Errorf("%d patches in two hours, want some, and not many more than 120 an hour", patches)
			}
			if !last.IsZero() && last.Sub(began) > 10*time.Minute {
				t.Errorf("called in step after %s", last.Sub(began))
			}
			d.time.Step(calm)
			d.looks()
			d.time.Step(calm)
			if d.looks(); !d.inStepNow() {
				t.Error("not in step although the other tool gave up")
			}
		})
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

// TestAnAuthoritySettlesInTheConfiguration counts from the end of the write:
// a request may take longer than the time to settle.
func TestAnAuthoritySettlesInTheConfiguration(t *testing.T) {
	d := newDesk(t)
	d.settles()
	old := d.files.shown()
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	d.api.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		d.time.Step(25 * time.Second)
		return false, nil, nil
	})
	d.looks()
	if !d.files.shown().Equal(old) {
		t.Fatal("a certificate of the new authority is shown at once")
	}
	d.time.Step(d.options.Settle - time.Second)
	if n := d.looks(); !d.files.shown().Equal(old) || n != (next{pause: time.Second}) {
		t.Fatalf("nine seconds later it is shown, or looked for again %+v", n)
	}
	d.time.Step(time.Second)
	if d.looks(); !d.files.shown().Equal(d.secret().leaf) {
		t.Error("after ten seconds it is not shown")
	}
}

// TestAnAuthorityThatCannotBeAnnouncedIsNotAnnounced has the configuration
// unreadable just when there is a new authority: what is known of the one
// before says nothing about this one.
func TestAnAuthorityThatCannotBeAnnouncedIsNotAnnounced(t *testing.T) {
	d := newDesk(t)
	d.settles()
	old := d.files.shown()
	d.edit(func(data map[string][]byte) { delete(data, authorityKey) })
	away := true
	d.api.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("away")
	})
	for range 5 {
		if _, err := d.once(t.Context()); err == nil {
			t.Fatal("no error about a configuration that cannot be read")
		}
		if d.secret().leaf.Equal(old) || !d.files.shown().Equal(old) {
			t.Fatal("there is no new certificate, or it is shown before its authority was announced")
		}
		d.time.Step(time.Minute)
	}
	away = false
	d.looks()
	if !d.files.shown().Equal(old) {
		t.Error("shown as soon as its authority was announced")
	}
	// And what was known is forgotten: it may have been taken out meanwhile.
	d.time.Step(d.options.Settle - time.Second)
	away = true
	_, _ = d.once(t.Context())
	d.time.Step(time.Second)
	away = false
	if d.looks(); !d.files.shown().Equal(old) {
		t.Error("shown although for a while nobody knew what the configuration held")
	}
}

// run is a Keeper that runs, on time that passes only when everybody waits.
type run struct {
	api *fake.Clientset
	// watches are those of the Secret.
	watches []*watch.FakeWatcher
}

// running starts one. Reactors have to be there before it.
func running(t *testing.T, api *fake.Clientset) *run {
	t.Helper()
	l := &run{api: api}
	var all []*watch.FakeWatcher
	l.api.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFake()
		all = append(all, w)
		if a.Matches("watch", "secrets") {
			l.watches = append(l.watches, w)
		}
		return true, w, nil
	})
	k := keeper(t, l.api, clock.RealClock{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		for _, w := range all { // as a client does
			w.Stop()
		}
		<-done
	})
	return l
}

func (l *run) goesOn(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestAFailureIsWaitedOut has everything fail, and changes heard of all the
// time: none of them may hurry anybody.
func TestAFailureIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, tries := fake.NewClientset(), 0
		api.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			return true, nil, errors.New("away")
		})
		l := running(t, api)
		for range 3600 {
			l.goesOn(time.Second)
			l.watches[0].Modify(&corev1.Secret{})
		}
		if tries < 110 || tries > 135 {
			t.Errorf("%d tries in an hour, want one every %s", tries, lastRetry)
		}
	})
}

// TestWhatIsDeletedBetweenTwoWatchesIsMissed deletes the Secret while nobody
// watches: a watch that begins later has nothing to tell.
func TestWhatIsDeletedBetweenTwoWatchesIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(t, fake.NewClientset())
		l.goesOn(time.Minute)
		secrets := l.api.CoreV1().Secrets("system")
		first, err := secrets.Get(t.Context(), "tls", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l.watches[0].Stop()
		l.goesOn(time.Second / 2) // the next one begins after a second
		if err := secrets.Delete(t.Context(), "tls", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		l.goesOn(time.Second)
		next, err := secrets.Get(t.Context(), "tls", metav1.GetOptions{})
		if err != nil || bytes.Equal(next.Data[authorityKey], first.Data[authorityKey]) {
			t.Errorf("after %d watches the Secret was not made anew: %v", len(l.watches), err)
		}
	})
}
