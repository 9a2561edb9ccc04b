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

// replaceFile puts new content where name is, in one step, with the mode and
// the owner that the file had. Behind a link, the file that it points to is
// replaced.
func replaceFile(name string, data []byte) error {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".nodewarden-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already if all went well
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = giveTo(owner(info), tmp)
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
