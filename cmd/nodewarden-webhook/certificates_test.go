package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestSelfManagedCertificatesNeedEverythingThatTheyGoBy(t *testing.T) {
	const secret, names = "--self-managed-cert-secret=nodewarden-system/nodewarden-webhook-tls", "--self-managed-cert-names=hook.nodewarden-system.svc,10.0.0.1,::1"
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"everything that is needed":          {[]string{secret, names}, nil},
		"nothing at all":                     {nil, nil},
		"names without a Secret":             {[]string{names}, []string{"self-managed-cert-names"}},
		"a Secret without names":             {[]string{secret}, []string{"self-managed-cert-names"}},
		"a Secret without its namespace":     {[]string{"--self-managed-cert-secret=tls", names}, []string{"self-managed-cert-secret"}},
		"nothing that can be a name":         {[]string{"--self-managed-cert-secret=A/B_", "--self-managed-cert-names=a b", "--webhook-configuration="}, []string{"self-managed-cert-names", "self-managed-cert-secret", "webhook-configuration"}},
		"a life too short to notice its end": {[]string{secret, names, "--self-managed-cert-lifetime=59m"}, []string{"self-managed-cert-lifetime"}},
		"an hour":                            {[]string{secret, names, "--self-managed-cert-lifetime=1h"}, nil},
		"ten years":                          {[]string{secret, names, "--self-managed-cert-lifetime=87600h"}, nil},
		"a life that ends in the past, as there is no duration for its authority's": {[]string{secret, names, "--self-managed-cert-lifetime=876000h"}, []string{"self-managed-cert-lifetime"}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
			var f certFlags
			f.add(fs)
			if err := fs.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range f.problems() {
				got = append(got, e.Field)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("problems with %s, want %s:\n%v", strings.Join(got, ", "), strings.Join(c.want, ", "), f.problems())
			}
		})
	}
}

func TestALifetimeOutOfRangeIsToldWithTheRange(t *testing.T) {
	for _, lifetime := range []string{"0s", "1s", "59m0s", "87601h0m0s", "876000h0m0s"} {
		fs := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
		var f certFlags
		f.add(fs)
		if err := fs.Parse([]string{"--self-managed-cert-secret=a/b", "--self-managed-cert-names=c", "--self-managed-cert-lifetime=" + lifetime}); err != nil {
			t.Fatal(err)
		}
		want := `self-managed-cert-lifetime: Invalid value: "` + lifetime + `": want a duration from 1h0m0s to 87600h0m0s, which is ten years`
		if got := f.problems(); len(got) != 1 || got[0].Error() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
