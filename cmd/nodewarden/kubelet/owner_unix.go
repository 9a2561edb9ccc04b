//go:build unix

package kubelet

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ids are the numbers of a user and a group.
type ids struct{ user, group int }

func owner(info fs.FileInfo) ids {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ids{os.Getuid(), os.Getgid()}
	}
	return ids{int(stat.Uid), int(stat.Gid)}
}

// giveTo makes o the owner of a file that we have just made. It does nothing
// where o is its owner: only root may give files away.
func giveTo(o ids, file *os.File) error {
	info, err := file.Stat()
	if err != nil || owner(info) == o {
		return err
	}
	if err := file.Chown(o.user, o.group); err != nil {
		return fmt.Errorf("keep its owner %d:%d, which root may: %w", o.user, o.group, err)
	}
	return nil
}
