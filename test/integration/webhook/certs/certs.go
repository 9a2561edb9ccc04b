// Package certs makes certificate authorities and the certificates they sign,
// for tests that speak TLS over loopback. The keys are as short-lived as the
// test; nothing here is fit for a cluster.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	// PEM is the authority's own certificate.
	PEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Certificate, Key []byte }

// New returns an authority of its own.
func New(t testing.TB) *Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a := &Authority{key: key(t)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Issue returns a certificate for loopback servers and for clients, which
// expires at that time.
func (a *Authority) Issue(t testing.TB, expires time.Time) Pair {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "nodewarden-webhook"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	k := key(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// Pool holds the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// TLS returns the pair as crypto/tls wants it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Certificate, p.Key)
	must(t, err)
	return c
}

// Write writes the pair as tls.crt and tls.key into folder.
func (p Pair) Write(t testing.TB, folder string) (certificate, key string) {
	t.Helper()
	certificate, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	must(t, os.WriteFile(certificate, p.Certificate, 0o600))
	must(t, os.WriteFile(key, p.Key, 0o600))
	return certificate, key
}

func key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return k
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(t, err)
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
