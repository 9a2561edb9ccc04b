// Command nodewarden-webhook judges writes to the Ready condition of Nodes for
// the API server, by the contract of KEP-6371. It changes nothing in the
// cluster, and no write by a kubelet depends on it.
package main

import "github.com/nodewarden/nodewarden/cmd/internal/boot"

func main() { boot.Main(boot.Program{Name: name, Run: run}) }
