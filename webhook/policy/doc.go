// Package policy renders the contract as objects that an API server enforces:
// the webhook configuration that sends it the right reviews, and
// ValidatingAdmissionPolicies that decide in the API server's own process,
// with no network in between.
//
// Everything is rendered from one contract.Policy, so the enforcers cannot
// drift apart; a differential test holds their verdicts equal. It only writes
// text: it never evaluates CEL, reads a file or talks to a cluster.
//
// The expressions are total. One that ends in an error refuses everything
// under failurePolicy Fail, kubelets included, so no request may make one err:
// optional fields are read with defaults, instants are compared as text and
// become numbers only between the years 2000 and 2200, and nothing costs more
// than linear time in what a request may hold, save where a bound says so.
package policy
