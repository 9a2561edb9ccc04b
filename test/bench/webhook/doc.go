// Package webhook measures what a review costs: ours beside a handler that
// decodes both Nodes with the types of k8s.io/api, as controller-runtime
// offers it, and beside one that reads the body and nothing else. Whatever is
// compared is measured in turns within one run, so that a busy machine slows
// all of it alike. It runs with `make bench` only, and fails where a bound is
// missed.
package webhook
