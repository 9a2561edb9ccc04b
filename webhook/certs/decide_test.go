package certs

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	noon  = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	month = 30 * 24 * time.Hour
	usual = want{names: []string{"hook.system.svc", "127.0.0.1"}, lifetime: 3 * month}
)

// fresh is what a Secret holds that was made at now.
func fresh(t *testing.T, w want, now time.Time) map[string][]byte {
	t.Helper()
	return apply(t, nil, nil, w, now)
}

// apply brings data up to date, as a Keeper would, with known in the configuration.
func apply(t *testing.T, data map[string][]byte, known []*x509.Certificate, w want, now time.Time) map[string][]byte {
	t.Helper()
	h := read(data)
	p := decide(h, w, now)
	if !p.asks() {
		return data
	}
	changes, err := p.carryOut(h, known, w, now)
	if err != nil {
		t.Fatal(err)
	}
	next := map[string][]byte{}
	for _, from := range []map[string][]byte{data, changes} {
		for k, v := range from {
			next[k] = v
		}
	}
	return next
}

func without(data map[string][]byte, keys ...string) map[string][]byte {
	next := map[string][]byte{}
	for k, v := range data {
		if !slices.Contains(keys, k) {
			next[k] = v
		}
	}
	return next
}

func with(data map[string][]byte, key string, value []byte) map[string][]byte {
	next := without(data, key)
	next[key] = value
	return next
}

func TestWhatASecretNeeds(t *testing.T) {
	good := fresh(t, usual, noon)
	other := fresh(t, usual, noon)
	for name, c := range map[string]struct {
		data            map[string][]byte
		want            want
		after           time.Duration
		authority, leaf string
	}{
		"an empty Secret needs everything":                           {data: nil, authority: "no usable authority", leaf: "older authority"},
		"what was just made needs nothing":                           {data: good},
		"nor shortly before a third of its life is left":             {data: good, after: 2*month - time.Minute},
		"a leaf is renewed with a third of its life left":            {data: good, after: 2*month + time.Minute, leaf: "near its end"},
		"an expired leaf is renewed":                                 {data: good, after: 3*month + time.Hour, leaf: "near its end"},
		"an authority is replaced with a third left":                 {data: good, after: 8*month + time.Minute, authority: "near its end", leaf: "older authority"},
		"garbage is as good as nothing":                              {data: with(good, bundleKey, []byte("garbage")), authority: "no usable", leaf: "older"},
		"an authority without its key cannot sign":                   {data: without(good, authorityKey), authority: "no usable", leaf: "older"},
		"nor one with another's":                                     {data: with(good, authorityKey, other[authorityKey]), authority: "no usable", leaf: "older"},
		"half a pair is no pair: the new key, the old leaf":          {data: with(good, leafKeyKey, other[leafKeyKey]), leaf: "no usable certificate"},
		"the new leaf, the old key":                                  {data: with(good, leafKey, other[leafKey]), leaf: "no usable certificate"},
		"a key that was cut short":                                   {data: with(good, leafKeyKey, good[leafKeyKey][:50]), leaf: "no usable certificate"},
		"a pair that another authority signed":                       {data: with(with(good, leafKey, other[leafKey]), leafKeyKey, other[leafKeyKey]), leaf: "older authority"},
		"a pair for other names":                                     {data: good, want: want{[]string{"hook.other.svc"}, 3 * month}, leaf: otherNames},
		"a pair for more names than asked":                           {data: good, want: want{[]string{"127.0.0.1"}, 3 * month}},
		"a longer life takes effect at once":                         {data: good, want: want{usual.names, 12 * month}, authority: "near its end", leaf: "older"},
		"nor does an authority sign for longer than it was made for": {data: good, want: want{usual.names, 3*month + time.Second}, authority: "shorter life", leaf: "older"},
		"a shorter one when its time has come":                       {data: good, want: want{usual.names, month}},
		"made by somebody whose clock is a day ahead":                {data: good, after: -24 * time.Hour, authority: "not valid yet", leaf: "older"},
		"half an hour behind is within what was allowed":             {data: good, after: -30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want.lifetime == 0 {
				c.want = usual
			}
			p := decide(read(c.data), c.want, noon.Add(c.after))
			for what, pair := range map[string][2]string{"authority": {p.newAuthority, c.authority}, "leaf": {p.newLeaf, c.leaf}} {
				if got, want := pair[0], pair[1]; (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("new %s because %q, want %q", what, got, want)
				}
			}
		})
	}
}

// foreign is an authority that somebody else made.
func foreign(t *testing.T) *x509.Certificate {
	t.Helper()
	a, err := newAuthority(noon, usual.lifetime)
	if err != nil {
		t.Fatal(err)
	}
	template := *a.cert
	template.RawSubject, template.Subject.CommonName = nil, "somebody else's"
	c, err := sign(&template, &template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestALostSecretKeepsWhatAPIServersTrust(t *testing.T) {
	lost := read(fresh(t, usual, noon))
	stranger := foreign(t)
	got := read(apply(t, nil, []*x509.Certificate{lost.authorities[0], stranger}, usual, noon.Add(month)))
	if len(got.authorities) != 2 || !got.authorities[1].Equal(lost.authorities[0]) {
		t.Fatalf("the bundle holds %d authorities; want the new one and the lost one", len(got.authorities))
	}
	if err := got.leaf.CheckSignatureFrom(got.authorities[0]); err != nil {
		t.Error(err)
	}
}

func TestReplicasThatWantDifferentNamesAgree(t *testing.T) {
	old, young := want{[]string{"a.svc"}, 3 * month}, want{[]string{"b.svc"}, 3 * month}
	data := fresh(t, old, noon)
	writes := 0
	for i := range 10 {
		w := []want{young, old}[i%2]
		next := apply(t, data, nil, w, noon)
		if string(next[leafKey]) != string(data[leafKey]) {
			writes++
		}
		data = next
	}
	if writes != 1 {
		t.Errorf("%d certificates were issued, want 1 for both", writes)
	}
}

func TestABundleReplacedByHandAgainAndAgainStaysBounded(t *testing.T) {
	data := fresh(t, usual, noon)
	for i := range 3 * maxAuthorities {
		data = apply(t, without(data, authorityKey), nil, usual, noon.Add(time.Duration(i)*time.Minute))
	}
	if n := len(read(data).authorities); n != maxAuthorities {
		t.Errorf("%d authorities, want %d", n, maxAuthorities)
	}
}

// TestTenYears looks at a Secret once a day, as if by a Keeper.
func TestTenYears(t *testing.T) {
	issued, authorities, widest := daily(t, 3650, func(int) time.Duration { return usual.lifetime })
	if issued < 55 || authorities < 14 || widest > 2 {
		t.Errorf("%d certificates, %d authorities, at most %d at a time; want 60, 15 and 2", issued, authorities, widest)
	}
}

// TestALifetimeThatIsChangedLosesNoCertificate is the same with a lifetime that
// somebody changes, or of which two replicas hold different opinions.
func TestALifetimeThatIsChangedLosesNoCertificate(t *testing.T) {
	const day = 24 * time.Hour
	for name, lifetime := range map[string]func(today int) time.Duration{
		"raised early": func(today int) time.Duration {
			if today < 10 {
				return 90 * day
			}
			return 250 * day
		},
		"raised and lowered":        func(today int) time.Duration { return []time.Duration{90, 250, 30, 120}[today/40%4] * day },
		"a little more every month": func(today int) time.Duration { return time.Duration(30+today/30) * day },
		"two opinions":              func(today int) time.Duration { return []time.Duration{90, 250}[today%2] * day },
		"no whole seconds":          func(int) time.Duration { return 90*day + 333*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			if issued, authorities, _ := daily(t, 1000, lifetime); issued > 300 || authorities > 200 {
				t.Errorf("%d certificates and %d authorities in a thousand days", issued, authorities)
			}
		})
	}
}

// daily looks at a Secret once a day, and asks what anybody may ask: that every
// certificate that is still valid, however long ago it was handed out, can be
// verified with the bundle of today.
func daily(t *testing.T, days int, lifetime func(day int) time.Duration) (certificates, authorities, widest int) {
	t.Helper()
	var data map[string][]byte
	var issued []*x509.Certificate
	signers := map[string]bool{}
	for day := range days {
		now := noon.Add(time.Duration(day) * 24 * time.Hour)
		w := want{usual.names, lifetime(day)}
		data = apply(t, data, nil, w, now)
		h := read(data)
		widest = max(widest, len(h.authorities))
		signers[h.authorities[0].SerialNumber.String()] = true
		if len(issued) == 0 || !issued[len(issued)-1].Equal(h.leaf) {
			issued = append(issued, h.leaf)
		}
		if left := h.leaf.NotAfter.Sub(now); left < w.lifetime/3-24*time.Hour {
			t.Fatalf("day %d: %s left", day, left)
		}
		if p := decide(h, w, now); p.asks() {
			t.Fatalf("day %d: at once something is asked for again: %s", day, p.reason())
		}
		if due := h.dueAfter(w, now); due.Before(now) {
			t.Fatalf("day %d: nothing to do, and yet due at %s", day, due)
		}
		pool := x509.NewCertPool()
		for _, a := range h.authorities {
			pool.AddCert(a)
		}
		for _, leaf := range issued {
			if now.After(leaf.NotAfter) {
				continue
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: "hook.system.svc"}); err != nil {
				t.Fatalf("day %d: a certificate of %s: %v", day, created(leaf), err)
			}
		}
	}
	return len(issued), len(signers), widest
}
