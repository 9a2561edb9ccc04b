// Package config reads the policy file: the versioned, strictly decoded form of
// contract.Policy and of the few settings of the webhook that belong to it. It
// never touches flags, certificates or addresses.
package config
