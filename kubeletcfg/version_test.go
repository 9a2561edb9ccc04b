package kubeletcfg_test

import (
	"testing"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

func TestAVersionIsReadAsVendorsWriteIt(t *testing.T) {
	for text, want := range map[string]kubeletcfg.Basis{
		"1.37":                   kubeletcfg.FromLoader,
		"v1.37.2":                kubeletcfg.FromLoader,
		"v1.37.0-alpha.3":        kubeletcfg.FromLoader,
		"v1.37.2-gke.1234000":    kubeletcfg.FromLoader,
		"v1.37.2-eks-1a2b3c4":    kubeletcfg.FromLoader,
		"v1.37.2+k3s1":           kubeletcfg.FromLoader,
		"v1.37.2+rke2r1":         kubeletcfg.FromLoader,
		"1.37+":                  kubeletcfg.FromLoader,
		"v1.30.0":                kubeletcfg.Inferred,
		"v1.36.9-vendor.2":       kubeletcfg.Inferred,
		"v1.38.0":                kubeletcfg.FromKEP,
		"v1.38.0-gke.5":          kubeletcfg.FromKEP,
		"v1.38.0-beta.0":         kubeletcfg.FromKEP,
		"v1.38.0-rc.1":           kubeletcfg.FromKEP,
		"v1.40.1":                kubeletcfg.FromKEP,
		"v1.38.0-alpha.2":        kubeletcfg.Inferred,
		"v1.38.0-alpha.2.7+abcd": kubeletcfg.Inferred,
	} {
		v, err := kubeletcfg.ParseVersion(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if v.Basis() != want || v.String() != text {
			t.Errorf("%s: rests on %q, want %q", text, v.Basis(), want)
		}
	}
}

func TestAVersionThatCannotBeReadIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "latest", "1", "v1", "1.x", "1.37.2.1", "2.0.0", "v1.29.9", "1.037", " 1.37", "1.37 ", "v1.37.2 (dirty)",
		"1.99999999999999999999", "v1.38-", "0.37.2",
	} {
		if v, err := kubeletcfg.ParseVersion(text); err == nil {
			t.Errorf("%q was read as %s", text, v)
		}
	}
}
