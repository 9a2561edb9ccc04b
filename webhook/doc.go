// Package webhook answers the API server's question whether a write to a
// Node's Ready condition keeps the contract, and counts what it sees.
//
// It decides nothing itself: it turns an admission review into a
// contract.Write, asks package contract, and turns the verdict into a
// response. It keeps no state between reviews beside its metrics, calls
// nobody while a review waits, and never stands in the way of a kubelet.
package webhook
