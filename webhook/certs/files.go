package certs

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
)

// files are where the server finds what it is to show.
type files struct{ certificate, key string }

// shown returns the certificate in the files; nil where there is no usable one.
func (f files) shown() *x509.Certificate {
	cert, err := os.ReadFile(f.certificate)
	if err != nil {
		return nil
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return nil
	}
	return pair(cert, key)
}

// write replaces the files. A reader that comes in between finds a key that
// does not fit, or, where both are in one file, never anything but a pair.
func (f files) write(cert, key []byte) error {
	if f.certificate == f.key {
		return replace(f.certificate, append(append([]byte{}, cert...), key...))
	}
	if err := replace(f.key, key); err != nil {
		return err
	}
	return replace(f.certificate, cert)
}

func replace(path string, content []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".next-")
	if err != nil {
		return fmt.Errorf("cannot keep the certificate for the server: %w", err)
	}
	_, err = next.Write(content)
	if cerr := next.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
		return fmt.Errorf("cannot keep the certificate for the server: %w", err)
	}
	return nil
}
