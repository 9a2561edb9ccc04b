// Package kubeletcfg knows what a kubelet makes of its configuration files,
// and writes and edits the ones that turn node Leases off.
//
// It answers three questions about files, and nothing else:
//
//   - Lint: what does a kubelet of this version do with these files? Each
//     setting is applied, ignored with a warning or ignored silently, or the
//     kubelet would not start at all.
//   - Render: which files ask for what this intent asks for, and in which
//     order may they be applied?
//   - Edit: how is one setting changed in a
//     file that somebody else wrote, without touching the rest of it?
//
// The behaviour modelled is that of the kubelet 1.37.2 loader; a test runs
// that loader over the same files and compares. What 1.38 adds is taken from
// KEP-6371 and every statement about it says so.
//
// The package is pure: files in, files out. It never reads a disk, a clock or
// an API server, and it never decides whether a cluster is ready for a change.
package kubeletcfg
