// Package zone decides how fast nodes that are down may be given a NoExecute
// taint: it counts them by zone, tells a broken node from a broken network, and
// hands out turns in the order in which nodes went down.
//
// It is pure: it never reads a clock, calls an API server or logs. Whoever calls
// passes the time.
package zone
