// Package boot is what nodewarden's servers share around their work: signals,
// exit codes, logs, the version, and the port for health and metrics. It knows
// nothing of what the servers do.
package boot
