package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	// backdate is how long before its creation a certificate begins to be
	// valid, for readers whose clock is behind.
	backdate = time.Hour
	// generations is how many lives of a certificate an authority lives.
	generations = 4
	// mark begins the name of every authority of ours.
	mark = "nodewarden-webhook-ca"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// created is when a certificate of ours was made.
func created(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// life is how long a certificate of ours was made to last.
func life(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(created(c)) }

// ours says whether an authority was made here, going by its name.
func ours(c *x509.Certificate) bool { return c.IsCA && strings.HasPrefix(c.Subject.CommonName, mark) }

// newAuthority makes an authority for certificates that last for lifetime.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	now = now.UTC().Truncate(time.Second)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: mark + " " + now.Format(time.RFC3339)},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(generations * lifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{cert, key}, nil
}

// issue makes a serving certificate for names, which are DNS names and IP
// addresses, and its key.
func (a *authority) issue(now time.Time, lifetime time.Duration, names []string) (*x509.Certificate, crypto.Signer, error) {
	now = now.UTC().Truncate(time.Second)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "nodewarden-webhook"},
		NotBefore: now.Add(-backdate), NotAfter: earliest(now.Add(lifetime), a.cert.NotAfter),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	cert, err := sign(template, a.cert, key.Public(), a.key)
	return cert, key, err
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// names returns the DNS names and IP addresses that a certificate is for.
func names(c *x509.Certificate) []string {
	all := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// encode returns certificates as PEM, in their order.
func encode(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})...)
	}
	return out
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// decode returns the certificates in a PEM text and leaves out what is none.
func decode(text []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return certs
		}
		if block.Type != certificateBlock {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, c)
		}
	}
}

// decodeKey returns the first private key in a PEM text.
func decodeKey(text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, fmt.Errorf("no PEM block of type %q", keyBlock)
		}
		if block.Type != keyBlock {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("a key of type %T cannot sign", key)
		}
		return signer, nil
	}
}

// fits says whether key is the private key of c.
func fits(c *x509.Certificate, key crypto.Signer) bool {
	public, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}
