package certs

import (
	"crypto"
	"crypto/x509"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret. Beside authorityKey they are those that every
// issuer of serving certificates uses.
const (
	bundleKey    = "ca.crt" // all authorities to trust, the one that signs first
	authorityKey = "ca.key" // the key of the first
	leafKey      = corev1.TLSCertKey
	leafKeyKey   = corev1.TLSPrivateKeyKey
)

// held is what a Secret holds, as far as it can be used.
type held struct {
	// authorities are in the bundle, newest first.
	authorities []*x509.Certificate
	// signer is the key of the first; nil if it is missing or another's.
	signer crypto.Signer
	// leaf is the serving certificate; nil unless it has its key beside it.
	leaf *x509.Certificate
}

// read never fails: what cannot be used is as good as absent.
func read(data map[string][]byte) held {
	h := held{authorities: slices.DeleteFunc(decode(data[bundleKey]), func(c *x509.Certificate) bool { return !c.IsCA })}
	if key, err := decodeKey(data[authorityKey]); err == nil && len(h.authorities) > 0 && fits(h.authorities[0], key) {
		h.signer = key
	}
	if leaf := pair(data[leafKey], data[leafKeyKey]); leaf != nil {
		h.leaf = leaf
	}
	return h
}

// pair returns the certificate of a PEM pair; nil unless the two fit together.
func pair(cert, key []byte) *x509.Certificate {
	certs := decode(cert)
	private, err := decodeKey(key)
	if len(certs) == 0 || err != nil || !fits(certs[0], private) {
		return nil
	}
	return certs[0]
}

// want is what a Secret should hold.
type want struct {
	names []string
	// lifetime is of a serving certificate.
	lifetime time.Duration
}

// plan is what to do about a Secret. The zero plan asks for nothing. The
// reasons are for people.
type plan struct {
	newAuthority, newLeaf string
	// names go into a new leaf.
	names []string
	// keep are the authorities that stay in the bundle, newest first.
	keep []*x509.Certificate
	// drop says that keep is fewer than there were.
	drop bool
}

func (p plan) asks() bool { return p.newAuthority != "" || p.newLeaf != "" || p.drop }

func (p plan) reason() string {
	switch {
	case p.newAuthority != "":
		return p.newAuthority
	case p.newLeaf != "":
		return p.newLeaf
	default:
		return "an old authority has no certificate left"
	}
}

// decide says what a Secret that holds h needs at now.
func decide(h held, w want, now time.Time) plan {
	p := plan{names: w.names, newAuthority: h.authorityDue(w, now)}
	p.keep = needed(h.authorities, now)
	p.drop = len(p.keep) < len(h.authorities)
	if p.newAuthority != "" {
		p.newLeaf = "signed by an older authority"
		return p
	}
	p.newLeaf = h.leafDue(w, now)
	if p.newLeaf == otherNames {
		// Replicas of two versions may want different names for a while. They
		// would take turns for ever if each dropped the other's.
		p.names = union(w.names, names(h.leaf))
	}
	return p
}

// authorityDue says why a new authority is needed; empty if it is not.
func (h held) authorityDue(w want, now time.Time) string {
	if h.signer == nil {
		return "no usable authority"
	}
	cert := h.authorities[0]
	switch {
	case now.Before(cert.NotBefore):
		return "the authority is not valid yet"
	case now.After(authorityRenewal(cert, w)):
		return "the authority is near its end"
	case life(cert) < (generations * w.lifetime).Truncate(time.Second):
		// It would be forgotten before its last certificate expires: see retirement.
		return "the authority was made for certificates of a shorter life"
	}
	return ""
}

const otherNames = "the certificate is for other names"

// leafDue says why a new leaf is needed; empty if it is not.
func (h held) leafDue(w want, now time.Time) string {
	switch {
	case h.leaf == nil:
		return "no usable certificate"
	case h.leaf.CheckSignatureFrom(h.authorities[0]) != nil:
		return "signed by an older authority"
	case now.Before(h.leaf.NotBefore):
		return "the certificate is not valid yet"
	case now.After(leafRenewal(h.leaf, w)):
		return "the certificate is near its end"
	case len(union(names(h.leaf), w.names)) > len(names(h.leaf)):
		return otherNames
	}
	return ""
}

// A certificate is renewed when a third of its life is left: of the life that
// it should have, so that a longer one takes effect at once.
func leafRenewal(c *x509.Certificate, w want) time.Time { return c.NotAfter.Add(-w.lifetime / 3) }

// An authority is renewed while it can still sign for a whole life and a third.
func authorityRenewal(c *x509.Certificate, w want) time.Time {
	return c.NotAfter.Add(-generations * w.lifetime / 3)
}

// needed leaves out the authorities of which no certificate can be valid any
// more. What an authority signed, it signed before the next one was created.
func needed(newestFirst []*x509.Certificate, now time.Time) []*x509.Certificate {
	var keep []*x509.Certificate
	for i, c := range newestFirst {
		if i > 0 && now.After(retirement(c, newestFirst[i-1])) {
			continue
		}
		keep = append(keep, c)
	}
	return keep
}

// retirement is when the last certificate that c signed expires, if next was
// the authority after it. None lasts longer than c was made for.
func retirement(c, next *x509.Certificate) time.Time {
	return earliest(c.NotAfter, created(next).Add(life(c)/generations))
}

// dueAfter returns the next moment after now at which decide may ask for
// something, if nothing else changes.
func (h held) dueAfter(w want, now time.Time) time.Time {
	if h.leaf == nil || h.signer == nil {
		return now
	}
	due := earliest(leafRenewal(h.leaf, w), authorityRenewal(h.authorities[0], w))
	for i, c := range h.authorities[1:] {
		due = earliest(due, retirement(c, h.authorities[i]))
	}
	return due
}

// maxAuthorities bounds a bundle whose authority is replaced by hand again
// and again.
const maxAuthorities = 8

// carryOut makes what p asks for and returns what the Secret is to hold.
// Known are authorities that the API server trusts already: after the Secret
// was lost, replicas still show what those have signed.
func (p plan) carryOut(h held, known []*x509.Certificate, w want, now time.Time) (map[string][]byte, error) {
	a := &authority{key: h.signer}
	bundle := p.keep
	if p.newAuthority != "" {
		var err error
		if a, err = newAuthority(now, w.lifetime); err != nil {
			return nil, err
		}
		bundle = needed(bound(append([]*x509.Certificate{a.cert}, merge(p.keep, known)...)), now)
	}
	a.cert = bundle[0]
	data := map[string][]byte{bundleKey: encode(bundle...)}
	if p.newAuthority != "" {
		key, err := encodeKey(a.key)
		if err != nil {
			return nil, err
		}
		data[authorityKey] = key
	}
	if p.newLeaf == "" {
		return data, nil
	}
	leaf, key, err := a.issue(now, w.lifetime, p.names)
	if err != nil {
		return nil, err
	}
	data[leafKey] = encode(leaf)
	data[leafKeyKey], err = encodeKey(key)
	return data, err
}

// merge returns all of a and those of b that are ours and new, newest first.
func merge(a, b []*x509.Certificate) []*x509.Certificate {
	all := slices.Clone(a)
	for _, c := range b {
		if ours(c) && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *x509.Certificate) int { return b.NotBefore.Compare(a.NotBefore) })
	return all
}

func bound(certs []*x509.Certificate) []*x509.Certificate {
	return certs[:min(len(certs), maxAuthorities)]
}

func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
