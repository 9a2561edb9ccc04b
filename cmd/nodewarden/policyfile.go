package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/webhook/config"
)

// policyFlags name the policy that a command works with.
type policyFlags struct {
	file, profile string
	flags         *pflag.FlagSet
}

func (f *policyFlags) add(fs *pflag.FlagSet) {
	f.flags = fs
	fs.StringVar(&f.file, "config", "", "policy file (kind "+config.Kind+"); without one, the default policy")
	fs.StringVar(&f.profile, "profile", "", "enforce, warn or audit, whatever the policy file says; without either, enforce")
}

// load returns the policy. Without a file it enforces: who asks what the
// contract says wants to hear all of it.
func (f *policyFlags) load() (contract.Policy, error) {
	if f.file == "" && f.flags.Changed("config") {
		return contract.Policy{}, errors.New(`--config "": want the path of a policy file, or leave it out for the default policy`)
	}
	if f.profile == "" && f.flags.Changed("profile") {
		return contract.Policy{}, fmt.Errorf(`--profile "": want one of %q, or leave it out`, contract.Profiles())
	}
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
