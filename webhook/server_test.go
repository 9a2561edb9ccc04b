package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

// patience is how long tests of this file wait for what must happen.
const patience = 20 * time.Second

// eventually waits until ok returns "", and fails with what it last returned.
func eventually(t *testing.T, ok func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		last := ok()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(last)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// site is a running server with its files.
type site struct {
	*Server
	authority *certs.Authority
	folder    string
	log       *lockedLog
	stop      context.CancelFunc
	// done receives what Run returned.
	done chan error
}

// serving starts a server whose options are edited before.
func serving(t *testing.T, edit func(*Options)) *site {
	t.Helper()
	s := &site{authority: certs.New(t), folder: t.TempDir(), log: &lockedLog{}, done: make(chan error, 1)}
	o := DefaultOptions(contract.Default(contract.Enforce))
	o.Address, o.Drain = "127.0.0.1:0", 0
	o.Files.Certificate, o.Files.Key = s.pair(time.Hour).Write(t, s.folder)
	if edit != nil {
		edit(&o)
	}
	var err error
	s.Server, err = New(o, prometheus.NewRegistry(), funcr.New(s.log.add, funcr.Options{Verbosity: 1}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-s.done:
			if err != nil {
				t.Errorf("stopped with %v", err)
			}
		case <-time.After(patience):
			t.Error("does not stop")
		}
	})
	return s
}

func (s *site) pair(lifetime time.Duration) certs.Pair { return s.issue(time.Now().Add(lifetime)) }

// issue needs no testing.T: an authority that cannot sign is a defect of the test.
func (s *site) issue(expires time.Time) certs.Pair { return s.authority.Issue(panicking{}, expires) }

type panicking struct{ testing.TB }

func (panicking) Helper()           {}
func (panicking) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (s *site) ready(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if err := s.Ready(t.Context()); err != nil {
			return "not ready: " + err.Error()
		}
		return ""
	})
}

// client returns a client that trusts the site, as edited.
func (s *site) client(edit func(*tls.Config, *http.Transport)) *http.Client {
	config := &tls.Config{RootCAs: s.authority.Pool()}
	transport := &http.Transport{TLSClientConfig: config}
	if edit != nil {
		edit(config, transport)
	}
	return &http.Client{Transport: transport, Timeout: patience}
}

func (s *site) post(c *http.Client, body []byte) (*http.Response, string, error) {
	resp, err := c.Post("https://"+s.Address()+Path, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

var goodBody = reviews.Body(update(failed, reviews.Detector))

func TestTheServerAnswersOverHTTP1UnlessToldOtherwise(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2 %t", http2), func(t *testing.T) {
			s := serving(t, func(o *Options) { o.HTTP2 = http2 })
			s.ready(t)
			resp, text, err := s.post(s.client(func(_ *tls.Config, tr *http.Transport) { tr.ForceAttemptHTTP2 = true }), goodBody)
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(text, `"allowed":true`) {
				t.Fatalf("%v %s", err, text)
			}
			if got := resp.ProtoMajor == 2; got != http2 {
				t.Errorf("answered in %s", resp.Proto)
			}
		})
	}
}

func TestOldTLSAndOtherPathsAreRefused(t *testing.T) {
	s := serving(t, nil)
	s.ready(t)
	if _, _, err := s.post(s.client(func(c *tls.Config, _ *http.Transport) {
		c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	}), goodBody); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	resp, err := s.client(nil).Get("https://" + s.Address() + "/metrics")
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("metrics on the port of reviews: %v %v", resp, err)
	}
}

func TestWithAClientCAOnlyItsClientsMayAsk(t *testing.T) {
	clients, strangers := certs.New(t), certs.New(t)
	var file string
	s := serving(t, func(o *Options) {
		file = filepath.Join(filepath.Dir(o.Files.Key), "ca.crt")
		o.Files.ClientCA = file
		write(t, file, clients.PEM)
	})
	s.ready(t)
	as := func(a *certs.Authority) *http.Client {
		return s.client(func(c *tls.Config, _ *http.Transport) {
			c.Certificates = []tls.Certificate{a.Issue(t, time.Now().Add(time.Hour)).TLS(t)}
		})
	}
	if resp, text, err := s.post(as(clients), goodBody); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a client of the CA: %v %s", err, text)
	}
	if _, _, err := s.post(as(strangers), goodBody); err == nil {
		t.Error("a client of another CA was answered")
	}
	resp, text, err := s.post(s.client(nil), goodBody)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "client certificate") {
		t.Errorf("a client without certificate: %v %v %s", resp, err, text)
	}
	if n := testutil.ToFloat64(s.certs.metrics.bad.WithLabelValues(string(badClient))); n != 1 {
		t.Errorf("counted %v times", n)
	}

	write(t, file, strangers.PEM)
	eventually(t, func() string {
		if _, _, err := s.post(as(strangers), goodBody); err != nil {
			return "the new client CA is not used: " + err.Error()
		}
		return ""
	})
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// swap replaces what a link points at in one step, as kubelets do with the
// ..data of a Secret volume.
func swap(t *testing.T, link, target string) {
	t.Helper()
	if err := os.Symlink(target, link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
}

func TestTheCertificateFollowsItsFiles(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, folder string, p certs.Pair){
		"rewritten in place": func(t *testing.T, folder string, p certs.Pair) { p.Write(t, folder) },
		"renamed over the old ones": func(t *testing.T, folder string, p certs.Pair) {
			certificate, key := p.Write(t, t.TempDir())
			for from, to := range map[string]string{certificate: "tls.crt", key: "tls.key"} {
				if err := os.Rename(from, filepath.Join(folder, to)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"swapped by a link, as in a Secret volume": func(t *testing.T, folder string, p certs.Pair) {
			next := filepath.Join(folder, "..2026_03_02")
			if err := os.Mkdir(next, 0o700); err != nil {
				t.Fatal(err)
			}
			p.Write(t, next)
			swap(t, filepath.Join(folder, "..data"), filepath.Base(next))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, func(o *Options) {
				folder := filepath.Dir(o.Files.Key)
				first := filepath.Join(folder, "..2026_03_01")
				if err := os.Mkdir(first, 0o700); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(name, "link") {
					return
				}
				for _, file := range []string{"tls.crt", "tls.key"} {
					if err := os.Rename(filepath.Join(folder, file), filepath.Join(first, file)); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(filepath.Join("..data", file), filepath.Join(folder, file)); err != nil {
						t.Fatal(err)
					}
				}
				swap(t, filepath.Join(folder, "..data"), filepath.Base(first))
			})
			s.ready(t)
			next := s.pair(5 * time.Hour)
			replace(t, s.folder, next)
			want := next.TLS(t)
			eventually(t, func() string {
				shown, err := s.handshake(t.Context())
				if err != nil || !bytes.Equal(shown, want.Certificate[0]) {
					return fmt.Sprintf("still shows another certificate (%v)", err)
				}
				return ""
			})
			s.ready(t)
			eventually(t, func() string {
				if got := int64(testutil.ToFloat64(s.certs.metrics.expiry)); got != want.Leaf.NotAfter.Unix() {
					return fmt.Sprintf("expiry is %d, want %d", got, want.Leaf.NotAfter.Unix())
				}
				if got, want := testutil.ToFloat64(s.certs.metrics.lifetime), want.Leaf.NotAfter.Sub(want.Leaf.NotBefore).Seconds(); got != want {
					return fmt.Sprintf("lifetime is %v, want %v", got, want)
				}
				return ""
			})
		})
	}
}

func TestUnusableCertificateFilesLeaveTheOldOnesServing(t *testing.T) {
	s := serving(t, nil)
	s.ready(t)
	old := s.certs.leaf()
	one, other := s.pair(time.Hour), s.pair(2*time.Hour)
	for i, c := range []struct {
		name string
		pair certs.Pair
	}{
		{"half a certificate", certs.Pair{Certificate: one.Certificate[:100], Key: one.Key}},
		{"a key of another certificate", certs.Pair{Certificate: one.Certificate, Key: other.Key}},
		{"empty files", certs.Pair{}},
		{"no PEM", certs.Pair{Certificate: []byte("certificate"), Key: []byte("key")}},
	} {
		c.pair.Write(t, s.folder)
		eventually(t, func() string {
			if n := testutil.ToFloat64(s.certs.metrics.badPairs); n < float64(i+1) {
				return fmt.Sprintf("%s: counted %v ignored pairs", c.name, n)
			}
			return ""
		})
		if shown, err := s.handshake(t.Context()); err != nil || !bytes.Equal(shown, old) {
			t.Errorf("%s: the old certificate is not served any more (%v)", c.name, err)
		}
	}
	other.Write(t, s.folder)
	eventually(t, func() string {
		if bytes.Equal(s.certs.leaf(), other.TLS(t).Certificate[0]) {
			return ""
		}
		return "a good pair is not used after bad ones"
	})
}

// following returns certificates whose files are not there yet, and their log.
func following(t *testing.T) (*certificates, *lockedLog) {
	t.Helper()
	folder, log := t.TempDir(), &lockedLog{}
	c := &certificates{metrics: NewMetrics(prometheus.NewRegistry(), Options{}), log: funcr.New(log.add, funcr.Options{})}
	c.files.Certificate, c.files.Key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	return c, log
}

func TestFilesThatDidNotChangeAreToldOfOnce(t *testing.T) {
	c, log := following(t)
	folder := filepath.Dir(c.files.Key)
	for i, change := range []func(){
		func() {}, // nothing is there yet
		func() { certs.Pair{Certificate: []byte("no"), Key: []byte("PEM")}.Write(t, folder) },
		func() { certs.New(t).Issue(t, time.Now().Add(time.Hour)).Write(t, folder) },
	} {
		change()
		for range 3 {
			c.reload()
		}
		if lines := log.all(); len(lines) != i+1 {
			t.Errorf("told %d times of %d changes: %q", len(lines), i+1, lines)
		}
	}
	if n := testutil.ToFloat64(c.metrics.badPairs); n != 2 {
		t.Errorf("ignored %v changes, want 2", n)
	}
}

// TestUnusableFilesAreToldOfForAsLongAsTheyAre is what an alert can go by: the
// errors are counted once a change, however long the files stay as they are.
func TestUnusableFilesAreToldOfForAsLongAsTheyAre(t *testing.T) {
	c, _ := following(t)
	folder := filepath.Dir(c.files.Key)
	good := certs.New(t).Issue(t, time.Now().Add(time.Hour))
	for _, step := range []struct {
		name     string
		change   func()
		unusable float64
	}{
		{"nothing is there yet", func() {}, 1},
		{"a good pair", func() { good.Write(t, folder) }, 0},
		{"no PEM", func() { write(t, c.files.Key, []byte("no")) }, 1},
		{"the key is gone", func() { _ = os.Remove(c.files.Key) }, 1},
		{"what was no PEM before", func() { write(t, c.files.Key, []byte("no")) }, 1},
		{"the good pair", func() { good.Write(t, folder) }, 0},
		{"the key is gone again", func() { _ = os.Remove(c.files.Key) }, 1},
		{"and back as it was", func() { good.Write(t, folder) }, 0},
	} {
		step.change()
		for range 3 {
			c.reload()
			if got := testutil.ToFloat64(c.metrics.unusable); got != step.unusable {
				t.Errorf("%s: unusable is %v, want %v", step.name, got, step.unusable)
			}
		}
	}
}

// TestANeighbourThatIsWrittenAllTheTimeDelaysNothing has another file of the
// folder change every 50 milliseconds, on time that passes only when everybody
// waits.
func TestANeighbourThatIsWrittenAllTheTimeDelaysNothing(t *testing.T) {
	c, _ := following(t)
	folder, authority := filepath.Dir(c.files.Key), certs.New(t)
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan fsnotify.Event)
		heeding(t, c, changes)
		synctest.Wait()
		for i := range 3 {
			next := authority.Issue(t, time.Now().Add(time.Duration(i+1)*time.Hour))
			next.Write(t, folder)
			for range settleAtMost/(50*time.Millisecond) + 1 {
				changes <- fsnotify.Event{}
				time.Sleep(50 * time.Millisecond)
			}
			synctest.Wait()
			if !bytes.Equal(c.leaf(), next.TLS(t).Certificate[0]) {
				t.Errorf("certificate %d is not used after %s", i, settleAtMost)
			}
		}
	})
}

// TestTheFilesAreReadWhenTheyRest writes a pair one file at a time: nothing may
// be read in between.
func TestTheFilesAreReadWhenTheyRest(t *testing.T) {
	c, log := following(t)
	authority := certs.New(t)
	authority.Issue(t, time.Now().Add(time.Hour)).Write(t, filepath.Dir(c.files.Key))
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan fsnotify.Event)
		heeding(t, c, changes)
		synctest.Wait()
		next := authority.Issue(t, time.Now().Add(2*time.Hour))
		write(t, c.files.Key, next.Key)
		changes <- fsnotify.Event{}
		time.Sleep(settle - time.Millisecond)
		synctest.Wait()
		write(t, c.files.Certificate, next.Certificate)
		changes <- fsnotify.Event{}
		time.Sleep(settle)
		synctest.Wait()
		if !bytes.Equal(c.leaf(), next.TLS(t).Certificate[0]) {
			t.Error("the pair is not used once it rests")
		}
		if n := testutil.ToFloat64(c.metrics.badPairs); n != 0 {
			t.Errorf("%v times read in between: %q", n, log.all())
		}

		// And nobody told of this one.
		silent := authority.Issue(t, time.Now().Add(3*time.Hour))
		silent.Write(t, filepath.Dir(c.files.Key))
		time.Sleep(pollFiles)
		synctest.Wait()
		if !bytes.Equal(c.leaf(), silent.TLS(t).Certificate[0]) {
			t.Errorf("a change that nobody told of is not noticed after %s", pollFiles)
		}
	})
}

func heeding(t *testing.T, c *certificates, changes <-chan fsnotify.Event) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); c.heed(t.Context(), changes) }()
	t.Cleanup(func() { <-done }) // the context of a test ends before
}

func TestNotReadyUntilThereIsACertificate(t *testing.T) {
	var certificate, key string
	s := serving(t, func(o *Options) {
		certificate, key = o.Files.Certificate, o.Files.Key
		for _, path := range []string{certificate, key} {
			if err := os.Rename(path, path+".later"); err != nil {
				t.Fatal(err)
			}
		}
	})
	conn, err := net.Dial("tcp", s.Address()) // the port answers
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no serving certificate") {
		t.Errorf("ready says %v", err)
	}
	for _, path := range []string{certificate, key} {
		if err := os.Rename(path+".later", path); err != nil {
			t.Fatal(err)
		}
	}
	s.ready(t)
}

func TestReadyNoticesAStrangerAtOurAddress(t *testing.T) {
	s, stranger := serving(t, nil), serving(t, nil)
	s.ready(t)
	stranger.ready(t)
	impostor := &Server{listener: stranger.listener, certs: s.certs, log: s.Server.log}
	if err := impostor.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("ready says %v", err)
	}
}

// TestStoppingLosesNoReview is the story of a rolling update: reviews keep
// arriving over kept-alive and over new connections while the server is told
// to stop.
func TestStoppingLosesNoReview(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2 %t", http2), func(t *testing.T) {
			s := serving(t, func(o *Options) { o.Drain, o.HTTP2 = time.Second, http2 })
			s.ready(t)
			client := s.client(func(_ *tls.Config, tr *http.Transport) { tr.ForceAttemptHTTP2 = http2 })
			var answered, closing atomic.Int32
			leaving, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				every := time.NewTicker(20 * time.Millisecond) // 50 a second
				defer every.Stop()
				for {
					select {
					case <-leaving:
						return
					case <-every.C:
					}
					resp, text, err := s.post(client, goodBody)
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Errorf("a review was lost: %v %s", err, text)
						return
					}
					answered.Add(1)
					if resp.Close {
						closing.Add(1)
					}
				}
			}()
			eventually(t, func() string { return unless(answered.Load() > 10, "no answers") })
			s.stop()
			eventually(t, func() string { return unless(s.Ready(t.Context()) != nil, "still ready") })
			before := answered.Load()
			eventually(t, func() string { return unless(answered.Load() > before+10, "does not answer while it drains") })
			close(leaving)
			<-stopped
			if !http2 && closing.Load() == 0 {
				t.Error("no answer asked the client to go elsewhere")
			}
		})
	}
}

func unless(ok bool, otherwise string) string {
	if ok {
		return ""
	}
	return otherwise
}

func TestWhatIsInFlightIsFinished(t *testing.T) {
	s := serving(t, nil)
	s.ready(t)
	// A body that arrives slowly, half before and half after the stop.
	read, send := io.Pipe()
	req, err := http.NewRequest(http.MethodPost, "https://"+s.Address()+Path, read)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	result := make(chan error, 1)
	go func() {
		resp, err := s.client(nil).Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
		}
		result <- err
	}()
	if _, err := send.Write(goodBody[:len(goodBody)/2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return unless(testutil.ToFloat64(s.certs.metrics.inFlight) == 1, "not in flight") })
	s.stop()
	eventually(t, func() string { return unless(s.draining.Load(), "not draining") })
	if _, err := send.Write(goodBody[len(goodBody)/2:]); err != nil {
		t.Fatal(err)
	}
	_ = send.Close()
	if err := <-result; err != nil {
		t.Errorf("a review in flight was lost: %v", err)
	}
}

func TestAPortInUseIsAnError(t *testing.T) {
	s := serving(t, nil)
	o := s.options
	o.Address = s.Address()
	if _, err := New(o, prometheus.NewRegistry(), s.Server.log); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAreRefusedAllAtOnce(t *testing.T) {
	errs := Options{Address: "9443", Drain: -1}.Validate().ToAggregate()
	for _, want := range []string{"bind-address", "tls-cert-file", "tls-private-key-file", "drain", "max-in-flight"} {
		if errs == nil || !strings.Contains(errs.Error(), want) {
			t.Errorf("%s is not mentioned in %v", want, errs)
		}
	}
}
