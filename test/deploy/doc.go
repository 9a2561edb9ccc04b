// Package deploy holds what we ship against what we built: the chart renders
// what the code renders, kustomize renders what the chart renders, and what is
// rendered runs, on a real control plane, with the rights that it is given and
// no others.
//
// Helm is compiled from its own module the first time, which takes minutes;
// everything that needs it is left out under -short.
package deploy

//go:generate go test . -count=1 -run TestWriteManifests -update
