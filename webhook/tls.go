package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

// CertificateFiles are what the server proves itself with, as PEM files.
type CertificateFiles struct {
	// Certificate and Key are the serving certificate, with its chain, and its
	// private key.
	Certificate, Key string
	// ClientCA signs the clients that may ask; empty admits anybody.
	ClientCA string
}

// certificates serves what stands in files, and follows their changes: a new
// set is used only where all of it fits together, else the old one stays.
type certificates struct {
	files   CertificateFiles
	protos  []string
	metrics *Metrics
	log     logr.Logger

	current atomic.Pointer[tls.Config]
	mu      sync.Mutex
	// seen is what the files held when they were last read, used or not.
	seen [][]byte
	// usable says that what was seen is in use.
	usable bool
	// missing is why the files could not be read at the last try.
	missing string
}

// errNoCertificate is what a handshake fails with until there is a certificate.
var errNoCertificate = errors.New("no serving certificate is loaded yet")

// server returns the configuration of a listener that always uses the newest
// usable files.
func (c *certificates) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: c.protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if now := c.current.Load(); now != nil {
				return now, nil
			}
			return nil, errNoCertificate
		},
	}
}

// leaf returns the serving certificate in use, in DER; nil where there is none.
func (c *certificates) leaf() []byte {
	now := c.current.Load()
	if now == nil {
		return nil
	}
	return now.Certificates[0].Certificate[0]
}

// reload reads the files, and uses them if they have changed and fit together.
func (c *certificates) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, err := c.read()
	if err != nil {
		if err.Error() != c.missing { // told once, however often it is tried
			c.missing = err.Error()
			c.ignore(err)
		}
		c.metrics.filesUnusable()
		return
	}
	c.missing = ""
	if !equal(held, c.seen) {
		c.seen = held
		c.usable = c.adopt(held)
	}
	if c.usable {
		c.metrics.filesUsable()
	} else {
		c.metrics.filesUnusable()
	}
}

// adopt uses what the files hold, and says whether it fits together.
func (c *certificates) adopt(held [][]byte) bool {
	next, err := c.configure(held)
	if err != nil {
		c.ignore(err)
		return false
	}
	c.use(next)
	return true
}

func (c *certificates) use(next *tls.Config) {
	c.current.Store(next)
	leaf := next.Certificates[0].Leaf
	c.metrics.showing(leaf)
	c.log.Info("loaded the serving certificate", "file", c.files.Certificate, "expires", leaf.NotAfter.UTC().Format(time.RFC3339))
}

func (c *certificates) ignore(err error) {
	c.metrics.ignoredPair()
	c.log.Error(err, "ignored the certificate files", "keptServing", c.current.Load() != nil)
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// paths returns the files in the order in which read returns their content.
func (c *certificates) paths() []string {
	paths := []string{c.files.Certificate, c.files.Key}
	if c.files.ClientCA != "" {
		paths = append(paths, c.files.ClientCA)
	}
	return paths
}

func (c *certificates) read() ([][]byte, error) {
	var held [][]byte
	for _, path := range c.paths() {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		held = append(held, b)
	}
	return held, nil
}

// configure makes a configuration of what the files hold.
func (c *certificates) configure(held [][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(held[0], held[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", c.files.Certificate, c.files.Key, err)
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, fmt.Errorf("%s: %w", c.files.Certificate, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protos, Certificates: []tls.Certificate{pair}}
	if c.files.ClientCA == "" {
		return config, nil
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(held[2]) {
		return nil, fmt.Errorf("%s holds no certificate", c.files.ClientCA)
	}
	// Who brings none is turned away by the handler, which can say why; and the
	// server can reach itself to prove that it is ready.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	return config, nil
}

const (
	// settle is how long files must rest before they are read: a pair is
	// written one file at a time.
	settle = 100 * time.Millisecond
	// settleAtMost is how long that may take: other files in the same folder may
	// never rest.
	settleAtMost = time.Second
	// pollFiles is how often files are read although nothing was heard of them:
	// some file systems tell nothing.
	pollFiles = 30 * time.Second
	// pollMissing is the same as long as there is no certificate at all.
	pollMissing = time.Second
)

// follow reloads the files when they change, until ctx ends.
func (c *certificates) follow(ctx context.Context) {
	changes, stop := c.watch()
	defer stop()
	c.heed(ctx, changes)
}

// heed reloads the files once changes have settled, and now and then although
// there was none, until ctx ends.
func (c *certificates) heed(ctx context.Context, changes <-chan fsnotify.Event) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	var rested, enough <-chan time.Time // both nil as long as nothing has changed
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			rested = time.After(settle)
			if enough == nil {
				enough = time.After(settleAtMost)
			}
			continue
		case <-rested:
			rested, enough = nil, nil
		case <-enough:
			rested, enough = nil, nil
		case <-poll.C:
		}
		c.reload()
		poll.Reset(c.patience())
	}
}

func (c *certificates) patience() time.Duration {
	if c.leaf() == nil {
		return pollMissing
	}
	return pollFiles
}

// watch tells of changes in the folders of the files: files are replaced, not
// rewritten, and a watch on a file would follow the old one.
func (c *certificates) watch() (<-chan fsnotify.Event, func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		c.log.Error(err, "cannot watch the certificate files; they are polled", "every", pollFiles.String())
		return nil, func() {}
	}
	for _, path := range c.paths() {
		if err := w.Add(filepath.Dir(path)); err != nil {
			c.log.Error(err, "cannot watch the folder of a certificate file; it is polled", "file", path, "every", pollFiles.String())
		}
	}
	go func() {
		for err := range w.Errors {
			c.log.V(1).Info("watching the certificate files", "error", err.Error())
		}
	}()
	return w.Events, func() { _ = w.Close() }
}
