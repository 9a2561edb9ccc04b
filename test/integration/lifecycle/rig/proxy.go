package rig

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Proxy stands between a controller and the API server and misbehaves on demand.
type Proxy struct {
	url string

	mu     sync.Mutex
	frozen string
	thawed chan struct{}
	// refuse answers a request in place of the API server, or returns false.
	refuse func(http.ResponseWriter, *http.Request) bool
}

// Proxy starts a proxy whose requests arrive as somebody.
func (r *Rig) Proxy(t testing.TB, as *rest.Config) *Proxy {
	t.Helper()
	target, err := url.Parse(as.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(as)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{thawed: make(chan struct{})}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(pr *httputil.ProxyRequest) { pr.SetURL(target); pr.Out.Header.Del("Authorization") },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.URL.Query().Get("watch") != "" {
				resp.Body = &freezer{ReadCloser: resp.Body, proxy: p, path: resp.Request.URL.Path}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		if refuse == nil || !refuse(w, req) {
			forward.ServeHTTP(w, req)
		}
	}))
	p.url = server.URL
	t.Cleanup(func() {
		p.Thaw()
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// Config reaches the API server through the proxy.
func (p *Proxy) Config() *rest.Config { return &rest.Config{Host: p.url} }

// Freeze holds back every watch event of a resource, new watches included.
func (p *Proxy) Freeze(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.thawed = resource, make(chan struct{})
}

// Thaw lets them pass again.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != "" {
		p.frozen = ""
		close(p.thawed)
	}
}

// Conflict answers the next n patches whose path ends like this with 409. A test
// that ends before there were so many fails.
func (p *Proxy) Conflict(t testing.TB, suffix string, n int) {
	t.Helper()
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n > 0 {
			t.Errorf("%d patches of %s were to meet a conflict and were never sent", n, suffix)
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPatch || !strings.HasSuffix(req.URL.Path, suffix) {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if n == 0 {
			return false
		}
		n--
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"the proxy says so"}`)
		return true
	}
}

func (p *Proxy) holds(path string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == "" || !strings.HasSuffix(path, "/"+p.frozen) {
		return nil
	}
	return p.thawed
}

// freezer is a watch that can be held back.
type freezer struct {
	io.ReadCloser
	proxy *Proxy
	path  string
}

func (f *freezer) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	if thawed := f.proxy.holds(f.path); thawed != nil {
		<-thawed
		// What came in while it was frozen is lost, as with a cut connection.
		return 0, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return n, err
}
