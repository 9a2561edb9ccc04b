//go:build !unix

package kubelet

import (
	"io/fs"
	"os"
)

func owner(fs.FileInfo) struct{} { return struct{}{} }

// giveTo does nothing: who may write a file has not changed.
func giveTo(struct{}, *os.File) error { return nil }
