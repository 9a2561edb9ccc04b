// Package image builds our container images and runs what is in them, as a
// kubelet would: with nothing else in the file system, and as nobody.
package image
