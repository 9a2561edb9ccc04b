// Command registry reads image archives with the library of other people's
// tools, pushes them to a registry of its own, on loopback, and pulls every
// platform of them again. It prints what it got, as JSON, one line a platform.
//
// It is a module of its own, since nothing of ours needs that library.
package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// pulled is one image as a registry gives it out.
type pulled struct {
	Index      string   `json:"index"`
	Platform   string   `json:"platform"`
	User       string   `json:"user"`
	Entrypoint []string `json:"entrypoint"`
}

func main() {
	for _, archive := range os.Args[1:] {
		if err := roundTrip(archive); err != nil {
			fmt.Fprintf(os.Stderr, "registry: %s: %v\n", archive, err)
			os.Exit(1)
		}
	}
}

func roundTrip(archive string) error {
	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := unpack(archive, dir); err != nil {
		return err
	}
	index, err := read(dir)
	if err != nil {
		return err
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://")+"/nodewarden:test", name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(to, index); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	return pull(to, index)
}

// read finds the one index that the layout is about, and has it validated: every
// digest, size and media type, and that layers unpack to what they should.
func read(dir string) (v1.ImageIndex, error) {
	whole, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	if err := validate.Index(whole); err != nil {
		return nil, fmt.Errorf("not valid: %w", err)
	}
	manifest, err := whole.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%d entries, and tools take the only one", len(manifest.Manifests))
	}
	return whole.ImageIndex(manifest.Manifests[0].Digest)
}

func pull(from name.Reference, index v1.ImageIndex) error {
	pushed, err := index.Digest()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		image, err := remote.Image(from, remote.WithPlatform(*m.Platform))
		if err != nil {
			return fmt.Errorf("pull %s: %w", m.Platform, err)
		}
		if err := validate.Image(image); err != nil {
			return fmt.Errorf("%s is not valid: %w", m.Platform, err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		if got := config.OS + "/" + config.Architecture; got != m.Platform.String() {
			return fmt.Errorf("the image for %s is one for %s", m.Platform, got)
		}
		if err := json.NewEncoder(os.Stdout).Encode(pulled{pushed.String(), m.Platform.String(), config.Config.User, config.Config.Entrypoint}); err != nil {
			return err
		}
	}
	return nil
}

func unpack(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("%s leads out of the archive", h.Name)
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := write(path, r); err != nil {
			return err
		}
	}
}

func write(path string, from io.Reader) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
