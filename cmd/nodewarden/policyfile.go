package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/webhook/config"
)

// policyFlags name the policy that a command works with.
type policyFlags struct {
	file, profile string
}

func (f *policyFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.file, "config", "", "policy file (kind "+config.Kind+"); without one, the default policy")
	fs.StringVar(&f.profile, "profile", "", "enforce, warn or audit, whatever the policy file says; without either, enforce")
}

// load returns the policy. Without a file it enforces: who asks what the
// contract says wants to hear all of it.
func (f *policyFlags) load() (contract.Policy, error) {
	c, err := config.Load(f.file)
	if err != nil {
		return contract.Policy{}, err
	}
	p := c.Policy()
	switch {
	case f.profile != "":
		p.Profile = contract.Profile(f.profile)
		return p, known(p.Profile)
	case f.file == "":
		p.Profile = contract.Enforce
	}
	return p, nil
}

func known(p contract.Profile) error {
	for _, each := range contract.Profiles() {
		if p == each {
			return nil
		}
	}
	return fmt.Errorf("--profile %q: want one of %q", p, contract.Profiles())
}
