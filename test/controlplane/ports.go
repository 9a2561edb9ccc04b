package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
)

// Ports are taken from below the range that kernels use for outgoing
// connections, so that nobody's client sits on the port of an API server that
// is being restarted.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// FreePort is a loopback port that nobody listens on, for something that the
// caller is about to start.
func FreePort() (int, error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// freePorts holds all ports until it has the last, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("found no %d free loopback ports between %d and %d", n, lowestPort, highestPort)
}

// retryTakenPort runs start again when somebody else took a port between our
// look and the component's.
func retryTakenPort(mayRetry bool, start func() error) error {
	var err error
	for range 3 {
		if err = start(); err == nil || !mayRetry || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
	return err
}

func loopback(scheme string, port int) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
}

// answers asks a health page; any answer but 200 is an error that quotes it.
func answers(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := fetch(ctx, client, url)
		return err
	}
}

func fetch(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: %s", url, resp.Status, body)
	}
	return string(body), err
}
