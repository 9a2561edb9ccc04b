// Package controller runs the node lifecycle: it watches Nodes, asks package
// lifecycle what each look means and package zone how fast to go, and writes
// what comes of it. It never evicts a pod; that is what the NoExecute taints ask
// the taint-eviction-controller to do.
//
// Nothing it knows needs to outlive it: whatever is left to do can be read off
// the objects, so a controller that is killed anywhere is finished by the next.
package controller
