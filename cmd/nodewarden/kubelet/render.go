package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

type renderOptions struct{ form, dir string }

func renderCommand(s Streams) *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render INTENT --form FORM [--dir DIR]",
		Short: "Write an intent as the files that a way of installing Kubernetes wants",
		Long: `Write an intent as the files that a way of installing Kubernetes wants.

Forms: ` + formList() + `.

Every file begins with what applying it does to the machines, in which order it
may be applied, and what must be true before. A form of several steps puts each
step into a folder of its own. Without --dir the files are printed; with it they
are written there. A missing directory is made, files that exist are not replaced.

Exit code 2: the command line, the intent or the directory cannot be used.
3: a file could not be written or printed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return render(s, o, args[0]) },
	}
	cmd.Flags().StringVar(&o.form, "form", "", "one of "+formList()+" (required)")
	cmd.Flags().StringVar(&o.dir, "dir", "", "write the files into this directory; it is made if it is missing")
	return cmd
}

func formList() string {
	var names []string
	for _, f := range kubeletcfg.Forms() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

func render(s Streams, o renderOptions, intentFile string) error {
	if o.form == "" {
		return fmt.Errorf("--form is required: one of %s", formList())
	}
	data, err := os.ReadFile(intentFile)
	if err != nil {
		return err
	}
	intent, err := kubeletcfg.ParseIntent(data)
	if err != nil {
		return fmt.Errorf("%s: %w", intentFile, err)
	}
	rendered, err := kubeletcfg.Render(intent, kubeletcfg.Form(o.form))
	if err != nil {
		return fmt.Errorf("%s: %w", intentFile, err)
	}
	if o.dir == "" {
		return printFiles(s, rendered.Files)
	}
	return writeFiles(s, o.dir, rendered)
}

// printFiles separates several files by a line that YAML takes for a comment.
func printFiles(s Streams, files []kubeletcfg.File) error {
	for i, f := range files {
		if i > 0 {
			if _, err := fmt.Fprintln(s.Out, "---"); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(s.Out, "# %s\n%s", f.Name, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes all of them or, where one of them exists, none.
func writeFiles(s Streams, dir string, r kubeletcfg.Rendered) error {
	var there []error
	for _, f := range r.Files {
		if name := inside(dir, f); exists(name) {
			there = append(there, fmt.Errorf("--dir %s: %s exists and is not replaced: name another directory, or remove it", dir, name))
		}
	}
	if len(there) > 0 {
		return errors.Join(there...)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	for _, f := range r.Files {
		name := inside(dir, f)
		if err := createFile(name, f.Data); err != nil {
			return Fault{fmt.Errorf("--dir %s: %w", dir, err)}
		}
		fmt.Fprintln(s.Out, name)
	}
	fmt.Fprintf(s.Out, "Effect: %s.\n", r.Effect)
	for _, step := range r.Order {
		fmt.Fprintln(s.Out, step)
	}
	return nil
}

func inside(dir string, f kubeletcfg.File) string {
	return filepath.Join(dir, filepath.FromSlash(f.Name))
}

// exists is true also of a link that leads nowhere.
func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// createFile also makes the folder of a step.
func createFile(name string, data []byte) error {
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
