// Command loader runs the parts of kubelet and kubeadm 1.37.2 that read
// configuration, for tests to compare with. It starts nothing.
//
//	loader kubelet   reads cases from stdin, writes what the kubelet makes of each
//	loader gates     prints the feature gates of the kubelet, with their history
//	loader kubeadm   reads files from stdin, writes what kubeadm makes of each
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "loader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one of kubelet, gates, kubeadm")
	}
	switch args[0] {
	case "kubelet":
		return eachCase(func(c kubeletCase) kubeletResult { return loadKubelet(ctx, c) })
	case "gates":
		return printGates(os.Stdout)
	case "kubeadm":
		return eachCase(loadKubeadm)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// eachCase turns a stream of JSON cases into a stream of JSON results.
func eachCase[C, R any](judge func(C) R) error {
	var cases []C
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		return err
	}
	results := make([]R, 0, len(cases))
	for _, c := range cases {
		results = append(results, judge(c))
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}
