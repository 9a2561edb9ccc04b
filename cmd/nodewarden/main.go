// Command nodewarden is the tool around the contract of KEP-6371: it judges a
// write offline, renders the webhook configuration and the policies, checks
// kubelet configuration and plays a demo. Installed as kubectl-nodewarden it is
// a kubectl plugin.
package main

import (
	"os"
	"path/filepath"
)

func main() {
	os.Exit(run(filepath.Base(os.Args[0]), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}
