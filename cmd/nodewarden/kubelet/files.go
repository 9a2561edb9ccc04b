package kubelet

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

func readFile(name string) kubeletcfg.File {
	data, err := os.ReadFile(name)
	return kubeletcfg.File{Name: name, Data: data, Err: err}
}

// readDir reads every file below dir. What the kubelet would not read is in
// the list as well: that is worth a finding.
func readDir(dir string) ([]kubeletcfg.File, error) {
	// A kubelet does not follow the directory itself if it is a link: it would
	// find one entry without the right suffix, and read nothing.
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("--config-dir: %s is no directory (a kubelet does not follow a link there, and would read nothing)", dir)
	}
	var files []kubeletcfg.File
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		f := readFile(name)
		f.Name = filepath.ToSlash(rel)
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	return files, nil
}
