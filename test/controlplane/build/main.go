// Command kube is a whole Kubernetes control plane in one binary: it plays the
// part that its own name says, or else its first argument.
//
// It exists for tests, demonstrations and benchmarks. The parts are the real
// ones, built from the Go modules that Kubernetes publishes; only the
// container runtime under the kubelets pretends.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// roles holds every part that the binary can play. A role takes the arguments
// after its name and returns the exit code.
var roles = map[string]func(args []string) int{
	"etcd":                    etcd,
	"kube-apiserver":          stock(apiserver.NewAPIServerCommand),
	"kube-controller-manager": stock(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          stock(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 stock(kubectl.NewDefaultKubectlCommand),
	"hollow":                  hollow,
	"kubelet":                 kubelet,
}

func main() {
	if err := holdLifeline(); err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(2)
	}
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, ok := roles[name]; !ok && len(args) > 0 {
		name, args = args[0], args[1:]
		// kubectl looks for its plugins by what os.Args says.
		os.Args = append([]string{name}, args...)
	}
	play, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kube: no role %q: use one of %s\n", name,
			strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		os.Exit(2)
	}
	os.Exit(play(args))
}

// stock is a role with its usual command line. The command is made only when
// the role is played, for making one has effects on the whole process.
func stock(command func() *cobra.Command) func([]string) int {
	return func(args []string) int {
		c := command()
		c.SetArgs(args)
		return cli.Run(c)
	}
}

// etcd exits by itself with another code when it fails.
func etcd(args []string) int {
	etcdmain.Main(append([]string{"etcd"}, args...))
	return 0
}
