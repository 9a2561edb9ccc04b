package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/nodewarden/nodewarden/contract"
)

// mayBeEmpty holds the flags for which empty is a value: their help says which,
// and a kubelet takes an empty list of gates as well.
var mayBeEmpty = []string{"node", "context", "feature-gates"}

// wanted says what a flag wants, in more words than "a value".
var wanted = map[string]string{
	"config": "the path of a policy file", "profile": fmt.Sprintf("one of %q", contract.Profiles()),
	"before": "a file", "after": "a file", "as": "a user", "as-group": "a group", "now": "a time such as 2026-03-01T12:00:00Z",
	"explain": "one of " + joined(contract.Rules()),
	"path":    "a path such as /validate", "url": "https://HOST/PATH", "ca-file": "a PEM file", "output-dir": "a folder", "kubernetes-version": "a version such as 1.34",
	"config-dir": "a directory", "kubeadm-patches": "a directory", "dir": "a directory", "cluster-api": "manifests", "node-lease": "on or off",
	"kubeconfig": "the path of a kubeconfig", "output": "text or json",
}

// refuseEmpty is an error where a flag was given nothing, which comes of shell
// variables that are not set: that must not do what leaving the flag out does.
func refuseEmpty(given *pflag.FlagSet) error {
	var problems []error
	given.Visit(func(flag *pflag.Flag) {
		if empty(flag.Value) && !slices.Contains(mayBeEmpty, flag.Name) {
			problems = append(problems, fmt.Errorf(`--%s "": want %s, or leave it out`, flag.Name, cmp.Or(wanted[flag.Name], "a value")))
		}
	})
	return errors.Join(problems...)
}

// empty is true also of a list that holds nothing, or nothing in one place.
func empty(v pflag.Value) bool {
	if list, ok := v.(pflag.SliceValue); ok {
		values := list.GetSlice()
		return len(values) == 0 || slices.Contains(values, "")
	}
	return v.String() == ""
}
