// Command image builds the container images: one static program each, on top of
// nothing. An image is written as an OCI archive, which every container tool can
// load or push, with a software bill of materials beside it.
//
// The same source, toolchain and flags give the same bytes. It never talks to a
// registry and needs no container tool.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// programs are what there is an image of; each has its folder in cmd/.
var programs = []string{"nodewarden-webhook", "nodewarden-controller", "nodewarden"}

// options are the command line.
type options struct {
	out       string
	version   string
	commit    string
	created   time.Time
	platforms []string
	programs  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var created, platforms string
	fs := flag.NewFlagSet("image", flag.ExitOnError)
	fs.StringVar(&o.out, "out", "dist", "folder for the archives")
	fs.StringVar(&o.version, "version", "v0.0.0", "version that the programs report")
	fs.StringVar(&o.commit, "commit", "unknown", "commit that the programs report")
	fs.StringVar(&created, "created", "1970-01-01T00:00:00Z", "instant that the images carry; that of the commit, for the sake of equal bytes")
	fs.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "operating systems and architectures")
	fs.Usage = func() {
		fmt.Fprintf(fs.Output(), "usage: image [flags] [program...]\nprograms: %s\n", strings.Join(programs, " "))
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.created, err = time.Parse(time.RFC3339, created); err != nil {
		return o, fmt.Errorf("-created %q: want a time such as 2026-01-02T15:04:05Z", created)
	}
	for _, p := range strings.Split(platforms, ",") {
		if goos, goarch, ok := strings.Cut(p, "/"); !ok || goos == "" || goarch == "" {
			return o, fmt.Errorf("-platforms: %q: want for example linux/amd64", p)
		}
		o.platforms = append(o.platforms, p)
	}
	o.programs = fs.Args()
	if len(o.programs) == 0 {
		o.programs = programs
	}
	return o, nil
}

func run(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, program := range o.programs {
		if err := writeImage(ctx, program, o); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	return nil
}

// writeImage builds a program for every platform, and one archive of all.
func writeImage(ctx context.Context, program string, o options) error {
	work, err := os.MkdirTemp("", "nodewarden-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	a := newArchive(o)
	for _, platform := range o.platforms {
		name := program + "-" + strings.ReplaceAll(platform, "/", "-")
		binary := filepath.Join(work, name)
		if err := compile(ctx, program, platform, binary, o); err != nil {
			return err
		}
		bill, err := billOfMaterials(binary, program, platform, o)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.out, name+".spdx.json"), bill, 0o644); err != nil {
			return err
		}
		if err := a.add(program, platform, binary, bill); err != nil {
			return err
		}
	}
	path := filepath.Join(o.out, program+".tar")
	digest, err := a.write(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s\t%s\n", path, digest)
	return err
}
