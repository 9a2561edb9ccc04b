package certs

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestWhenANewCertificateIsShown(t *testing.T) {
	old := read(fresh(t, usual, noon))
	now := noon.Add(8*month + time.Hour)
	both := read(apply(t, fresh(t, usual, noon), nil, usual, now))
	for name, c := range map[string]struct {
		shown       *x509.Certificate
		authorities []*x509.Certificate
		announced   time.Duration // before now; 0 is never
		after       time.Duration // since the authority was made
		shownLeft   time.Duration
		want        time.Duration
	}{
		"nothing is shown yet, here or elsewhere: at once":                    {authorities: both.authorities[:1], want: 0},
		"nothing is shown here, but others show what an older one signed":     {authorities: both.authorities, announced: time.Second, want: 10 * time.Second},
		"and its authority has settled":                                       {authorities: both.authorities, after: 11 * time.Second, want: 0},
		"the authority is not announced":                                      {shown: old.leaf, shownLeft: month, authorities: both.authorities, want: 10 * time.Second},
		"it was announced a moment ago":                                       {shown: old.leaf, shownLeft: month, authorities: both.authorities, announced: 4 * time.Second, want: 6 * time.Second},
		"it has settled":                                                      {shown: old.leaf, shownLeft: month, authorities: both.authorities, announced: 10 * time.Second, want: 0},
		"it cannot be announced, and what is shown is about to end":           {shown: old.leaf, shownLeft: time.Hour, authorities: both.authorities, after: time.Minute, want: 0},
		"what is shown has expired, but the new authority is not settled yet": {shown: old.leaf, shownLeft: -time.Hour, authorities: both.authorities, after: 4 * time.Second, want: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			at := now.Add(c.after)
			h := handover{next: both.leaf, authorities: c.authorities, settle: 10 * time.Second, lifetime: usual.lifetime}
			if c.shown != nil {
				h.shown = &x509.Certificate{NotBefore: noon, NotAfter: at.Add(c.shownLeft)}
			}
			if c.announced > 0 {
				h.announced = at.Add(-c.announced)
			}
			if got := h.wait(at); got != c.want {
				t.Errorf("waits %s, want %s", got, c.want)
			}
		})
	}
}

func TestAnAuthorityCountsAsAnnouncedOnlyInEveryEntry(t *testing.T) {
	a, b := read(fresh(t, usual, noon)).authorities[0], read(fresh(t, usual, noon)).authorities[0]
	configuration := func(bundles ...[]byte) *admissionv1.ValidatingWebhookConfiguration {
		c := &admissionv1.ValidatingWebhookConfiguration{}
		for _, bundle := range bundles {
			c.Webhooks = append(c.Webhooks, admissionv1.ValidatingWebhook{ClientConfig: admissionv1.WebhookClientConfig{CABundle: bundle}})
		}
		return c
	}
	for name, c := range map[string]struct {
		in   *admissionv1.ValidatingWebhookConfiguration
		want bool
	}{
		"in both":       {configuration(encode(a), encode(b, a)), true},
		"in one":        {configuration(encode(a), encode(b)), false},
		"in none":       {configuration(encode(b), nil), false},
		"among garbage": {configuration(append([]byte("# ours\n"), encode(a)...)), true},
	} {
		if got := holds(c.in, a); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestFilesHoldAPairOrNothing(t *testing.T) {
	one, two := fresh(t, usual, noon), fresh(t, usual, noon)
	for name, key := range map[string]string{"two files": "tls.key", "one file for both": "tls.crt"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, key)}
			if f.shown() != nil {
				t.Error("something is shown from an empty folder")
			}
			for _, data := range []map[string][]byte{one, two} {
				if err := f.write(data[leafKey], data[leafKeyKey]); err != nil {
					t.Fatal(err)
				}
				if got := f.shown(); got == nil || !got.Equal(read(data).leaf) {
					t.Error("what was written is not what is shown")
				}
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) > 2 {
				t.Errorf("%v, left behind: %v", err, left)
			}
			if err := os.WriteFile(f.key, one[leafKeyKey], 0o600); err != nil {
				t.Fatal(err)
			}
			if f.shown() != nil {
				t.Error("half a pair is shown")
			}
		})
	}
	if err := (files{"/does/not/exist/tls.crt", "/does/not/exist/tls.key"}).write(nil, nil); err == nil {
		t.Error("no error about a folder that is not there")
	}
}
