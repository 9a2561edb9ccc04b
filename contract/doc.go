// Package contract decides whether one write to a Node's Ready condition keeps
// the promises that KEP-6371 asks of an external liveness detector.
//
// It is pure: it never reads a clock, calls an API server or logs. Whoever
// calls Check passes everything the decision needs, so every replica of every
// enforcer comes to the same verdict, before and after a restart.
//
// The rules bind honest writers and accidents. Whoever may write nodes/status
// can also forge time stamps and managedFields: a hostile writer with the same
// rights is not stopped here.
package contract
