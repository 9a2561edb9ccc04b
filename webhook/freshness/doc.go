// Package freshness tells, as metrics, which nodes have a Ready condition that
// nobody writes any more: the detector or the kubelet behind it may have died,
// and the last word it left looks healthy for ever. No admission call can show
// that, for a writer that has stopped makes no request.
//
// It keeps a small picture of every Node from a watch and judges it when it is
// scraped. It writes nothing, remembers nothing across restarts, and has no
// part in how reviews are answered: without an API server the figures stand
// still, and say so, while the webhook goes on.
package freshness
