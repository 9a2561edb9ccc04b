package kubelet

import (
	"crypto/rand"
	"errors"
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

// readDir reads every file below dir, wanted or not: what nobody would read is
// worth a finding. A link in place of dir is refused, because neither kubelet
// nor kubeadm follows it: the one would read nothing, the other would stop.
func readDir(dir string) ([]kubeletcfg.File, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory (a link to one is not followed)", dir)
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
	return files, err
}

// Replace puts new content where name is, in one step: whoever reads it finds
// the old content or the new, and an error leaves the old. A file that exists
// keeps its mode and its owner; behind a link, the file that it points to is
// replaced. The name that the content has before its time ends in nothing that
// a reader of the folder looks for, such as .yaml.
func Replace(name string, data []byte) error {
	target, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		target, err = name, nil
	}
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	old, err := os.Stat(target)
	switch {
	case err == nil:
		mode = old.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	tmp, err := os.OpenFile(filepath.Join(filepath.Dir(target), ".nodewarden-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already if all went well
	_, err = tmp.Write(data)
	if err == nil && old != nil {
		err = giveTo(owner(old), tmp)
	}
	if err == nil && old != nil {
		err = tmp.Chmod(mode) // after the owner, whose change may take bits away
	}
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), target)
}
