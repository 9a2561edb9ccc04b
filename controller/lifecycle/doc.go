// Package lifecycle decides what one look at a Node asks for: whether it has
// fallen silent, whether its pods must lose readiness, which taints and labels
// it should carry.
//
// It is pure: it never reads a clock, calls an API server or logs. Memory is a
// value, Seen, that every look returns for the next one.
package lifecycle
