package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin is a cluster administrator: user "admin" in group system:masters.
func (cp *ControlPlane) Admin() *rest.Config { return cp.User("admin", "system:masters") }

// Kubelet is the identity of a node's own kubelet.
func (cp *ControlPlane) Kubelet(node string) *rest.Config {
	return cp.User("system:node:"+node, "system:nodes")
}

// ServiceAccount is the identity of a service account, which need not exist.
func (cp *ControlPlane) ServiceAccount(namespace, name string) *rest.Config {
	return cp.User("system:serviceaccount:"+namespace+":"+name,
		"system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// User is anybody. The API server adds the group system:authenticated itself.
// The client has no rate limit of its own.
func (cp *ControlPlane) User(name string, groups ...string) *rest.Config {
	c := &rest.Config{Host: cp.URL(), QPS: -1, UserAgent: userAgent(name)}
	pair, err := cp.ca.client(name, groups)
	if err != nil {
		// A caller that asks for an impossible name learns it from its first
		// request, where it has to look at an error anyway.
		c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		return c
	}
	c.TLSClientConfig = rest.TLSClientConfig{CAData: cp.ca.pem, CertData: pair.cert, KeyData: pair.key}
	return c
}

// userAgent names the user in logs, and as the default field manager.
func userAgent(user string) string { return notInFileNames.ReplaceAllString(user, "-") }

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Kubeconfig writes c as a file that kubectl and others read, with everything
// inside, and returns its path. The file goes when the control plane goes.
func (cp *ControlPlane) Kubeconfig(c *rest.Config) (string, error) {
	data, err := kubeconfig(c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	name := notInFileNames.ReplaceAllString(c.UserAgent, "-") + "-" + hex.EncodeToString(sum[:4])
	path := filepath.Join(cp.dir, "kubeconfigs", name+".kubeconfig")
	return path, writeWhole(path, data)
}

func kubeconfig(c *rest.Config) ([]byte, error) {
	k := clientcmdapi.NewConfig()
	k.Clusters["nodewarden"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["user"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken,
		Impersonate: c.Impersonate.UserName, ImpersonateGroups: c.Impersonate.Groups,
	}
	k.Contexts["nodewarden"] = &clientcmdapi.Context{Cluster: "nodewarden", AuthInfo: "user"}
	k.CurrentContext = "nodewarden"
	return clientcmd.Write(*k)
}

// writeWhole never lets a reader see half a file.
func writeWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// certLife outlasts any test, and hides small differences between clocks.
const (
	certLife = 365 * 24 * time.Hour
	certSlop = time.Hour
)

// pair is a certificate and its key, as PEM.
type pair struct{ cert, key []byte }

// authority signs the API server's certificate and everybody else's. All
// clients share one key: who somebody is stands in the certificate.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte

	mu        sync.Mutex
	clientKey *ecdsa.PrivateKey
	clients   map[string]pair
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	clientKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := template(pkix.Name{CommonName: "nodewarden-test-ca"})
	if err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: certPEM(der), clientKey: clientKey, clients: map[string]pair{}}, nil
}

func template(who pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: who,
		NotBefore: now.Add(-certSlop), NotAfter: now.Add(certLife),
	}, nil
}

// serving is a certificate for the API server.
func (a *authority) serving() (pair, error) {
	t, err := template(pkix.Name{CommonName: "kube-apiserver"})
	if err != nil {
		return pair{}, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	t.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	return a.sign(t, key)
}

// client is the certificate of a user: the API server reads the name from the
// common name and the groups from the organizations.
func (a *authority) client(name string, groups []string) (pair, error) {
	id := fmt.Sprintf("%q %q", name, groups)
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, ok := a.clients[id]; ok {
		return p, nil
	}
	t, err := template(pkix.Name{CommonName: name, Organization: groups})
	if err != nil {
		return pair{}, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p, err := a.sign(t, a.clientKey)
	if err != nil {
		return pair{}, fmt.Errorf("sign a certificate for user %q: %w", name, err)
	}
	a.clients[id] = p
	return p, nil
}

func (a *authority) sign(t *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	k, err := keyPEM(key)
	return pair{cert: certPEM(der), key: k}, err
}

// newSigningKey is the key that signs service account tokens.
func newSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyPEM(key)
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
