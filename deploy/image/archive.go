package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// The parts of the OCI image specification that an image of one file needs.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        *descriptor  `json:"config,omitempty"`
		Layers        []descriptor `json:"layers,omitempty"`
		Manifests     []descriptor `json:"manifests,omitempty"`
	}
	imageConfig struct {
		Created      string    `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       process   `json:"config"`
		RootFS       rootFS    `json:"rootfs"`
		History      []history `json:"history"`
	}
	process struct {
		User       string            `json:"User"`
		Entrypoint []string          `json:"Entrypoint"`
		WorkingDir string            `json:"WorkingDir"`
		Labels     map[string]string `json:"Labels"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	history struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	}
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"

	// nobody runs the programs: a user without a home, a shell or a file.
	nobody = "65532"
	passwd = "nonroot:x:" + nobody + ":" + nobody + ":nonroot:/:/sbin/nologin\n"
)

// archive is an OCI layout in the making.
type archive struct {
	o         options
	blobs     map[string][]byte
	order     []string
	manifests []descriptor
}

func newArchive(o options) *archive { return &archive{o: o, blobs: map[string][]byte{}} }

// blob keeps data under its digest.
func (a *archive) blob(mediaType string, data []byte) descriptor {
	digest := sum(data)
	if a.blobs[digest] == nil {
		a.order = append(a.order, digest)
	}
	a.blobs[digest] = data
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(data)}
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(h[:])
}

// add adds the image for one platform.
func (a *archive) add(program, of, binary string, bill []byte) error {
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	layer, err := tarOf(a.o.created, []entry{
		{"etc/", nil, 0o755}, {"etc/passwd", []byte(passwd), 0o644}, {program, text, 0o755}, {"sbom.spdx.json", bill, 0o644},
	})
	if err != nil {
		return err
	}
	packed, err := compressed(layer)
	if err != nil {
		return err
	}
	goos, goarch, _ := strings.Cut(of, "/")
	created := a.o.created.UTC().Format(time.RFC3339)
	config, err := json.Marshal(imageConfig{
		Created: created, Architecture: goarch, OS: goos,
		Config: process{User: nobody + ":" + nobody, Entrypoint: []string{"/" + program}, WorkingDir: "/", Labels: a.labels(program)},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{sum(layer)}}, History: []history{{created, "deploy/image"}},
	})
	if err != nil {
		return err
	}
	described := a.blob(typeConfig, config)
	m, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: typeManifest, Config: &described, Layers: []descriptor{a.blob(typeLayer, packed)}})
	if err != nil {
		return err
	}
	d := a.blob(typeManifest, m)
	d.Platform = &platform{goarch, goos}
	a.manifests = append(a.manifests, d)
	return nil
}

func (a *archive) labels(program string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  a.o.version,
		"org.opencontainers.image.revision": a.o.commit,
		"org.opencontainers.image.source":   "https://github.com/nodewarden/nodewarden",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// write writes the archive and returns the digest of what it holds: an index
// of all platforms.
func (a *archive) write(path string) (string, error) {
	all, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: a.manifests})
	if err != nil {
		return "", err
	}
	top := a.blob(typeIndex, all)
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": a.o.version}
	index, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}})
	if err != nil {
		return "", err
	}
	files := []entry{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644}, {"index.json", index, 0o644}, {"blobs/", nil, 0o755}, {"blobs/sha256/", nil, 0o755}}
	for _, digest := range a.order {
		files = append(files, entry{"blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"), a.blobs[digest], 0o644})
	}
	whole, err := tarOf(a.o.created, files)
	if err != nil {
		return "", err
	}
	return top.Digest, os.WriteFile(path, whole, 0o644)
}

// entry is a file of a tar archive, or a folder if its name ends in a slash.
type entry struct {
	name string
	data []byte
	mode int64
}

// tarOf is a tar archive that shows nothing of the machine it was made on.
func tarOf(at time.Time, entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func compressed(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}
