package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Path is where reviews are answered.
const Path = "/validate"

const (
	// Reviews come from API servers over a fast network; what takes longer than
	// this is no review.
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 5 * time.Second
	writeTimeout      = 15 * time.Second
	// idleTimeout outlasts the 90 s for which an API server keeps a connection.
	idleTimeout = 2 * time.Minute
	// finishTimeout bounds what is still in flight after the drain.
	finishTimeout = 20 * time.Second
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 16 << 10
	// handshakeTimeout bounds the server's handshake with itself.
	handshakeTimeout = 2 * time.Second
)

// Server answers admission reviews over HTTPS. It keeps no state between them,
// so any replica answers any review.
type Server struct {
	options  Options
	certs    *certificates
	http     *http.Server
	listener net.Listener
	log      logr.Logger
	draining atomic.Bool
}

// New returns a Server that is bound to its address, so that a port in use is
// found early, but answers nobody until Run. Its metrics are registered with r.
func New(o Options, r prometheus.Registerer, log logr.Logger) (*Server, error) {
	if errs := o.Validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve reviews: %w", err)
	}
	metrics := NewMetrics(r, o)
	s := &Server{options: o, listener: listener, log: log}
	s.certs = &certificates{files: o.Files, metrics: metrics, log: log, protos: []string{"http/1.1"}}
	if o.HTTP2 {
		s.certs.protos = []string{"h2", "http/1.1"}
	}
	mux := http.NewServeMux()
	mux.Handle(Path, s.onlyClients(metrics, NewHandler(o.Policy, metrics, log, clock.RealClock{}, o.MaxInFlight)))
	s.http = s.server(s.leaving(mux))
	return s, nil
}

func (s *Server) server(h http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.options.HTTP2)
	return &http.Server{
		Handler: h, TLSConfig: s.certs.server(), Protocols: protocols,
		// A peer that is gone without a word is noticed by a ping.
		HTTP2:             &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: log.New(lines{s.log.V(1)}, "", 0),
	}
}

// lines turns the lines that net/http logs into structured ones.
type lines struct{ logr.Logger }

func (l lines) Write(b []byte) (int, error) {
	l.Info("HTTP server", "message", bounded(string(bytes.TrimSpace(b)), maxLogged))
	return len(b), nil
}

// onlyClients turns away who brought no certificate although one is asked for.
// One that the client CA did not sign has failed the handshake already.
func (s *Server) onlyClients(m *Metrics, next http.Handler) http.Handler {
	if s.options.Files.ClientCA == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			m.couldNotRead(badClient)
			http.Error(w, "a client certificate is required: set one for this webhook in the API server's --admission-control-config-file", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// leaving asks clients, once the server is told to stop, to come back over
// another connection, which will lead elsewhere. Connections that carry
// nothing stay open until the end: closing one while a review enters it would
// lose the review.
func (s *Server) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until ctx ends, then drains: it is not ready at once, keeps
// answering for Options.Drain, finishes what is in flight and returns nil.
func (s *Server) Run(ctx context.Context) error {
	following, stop := context.WithCancel(context.Background())
	defer stop()
	go s.certs.follow(following)
	served := make(chan error, 1)
	go func() { served <- s.http.ServeTLS(s.listener, "", "") }()
	s.log.Info("serving reviews", "address", s.Address(), "path", Path, "profile", s.options.Policy.Profile)
	select {
	case err := <-served:
		return fmt.Errorf("serving reviews: %w", err)
	case <-ctx.Done():
	}
	return s.leave(served)
}

func (s *Server) leave(served <-chan error) error {
	s.draining.Store(true)
	s.log.Info("stopping: not ready any more, still answering", "for", s.options.Drain.String())
	select {
	case err := <-served:
		return fmt.Errorf("serving reviews: %w", err)
	case <-time.After(s.options.Drain):
	}
	finishing, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	if err := s.http.Shutdown(finishing); err != nil {
		return fmt.Errorf("reviews still in flight %s after the drain: %w", finishTimeout, err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving reviews: %w", err)
	}
	s.log.Info("stopped")
	return nil
}

// Ready says why no reviews should be sent here; nil where they should. It
// proves the way a review would come: by a handshake with the server itself
// that shows the certificate in use.
func (s *Server) Ready(ctx context.Context) error {
	if s.draining.Load() {
		return errors.New("stopping")
	}
	before := s.certs.leaf()
	if before == nil {
		return errNoCertificate
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	shown, err := s.handshake(ctx)
	if err != nil {
		return fmt.Errorf("no handshake with ourselves: %w", err)
	}
	if !bytes.Equal(shown, before) && !bytes.Equal(shown, s.certs.leaf()) {
		return errors.New("our address shows somebody else's certificate")
	}
	return nil
}

// handshake returns the certificate that the server's own address shows.
func (s *Server) handshake(ctx context.Context) ([]byte, error) {
	// Nothing is verified: the certificate is compared with ours instead, and
	// is not made for the name of a loopback address.
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}} //nolint:gosec // see above
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Address())
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	defer func() { _ = conn.Close() }()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates[0].Raw, nil
}
