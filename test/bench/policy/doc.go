// Package policy measures what the contract costs a write at the API server,
// as the policy, as the webhook and as both, beside nothing at all.
//
// It judges ratios within one run; the figures themselves belong to the machine,
// of which it takes 8 GiB of memory and a quarter of an hour.
package policy
