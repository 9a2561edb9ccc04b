package contract

import (
	"slices"
	"strings"
)

// User is who sent a write, as the API server authenticated it. Somebody who
// impersonates is seen as the one it impersonates.
type User struct {
	Name   string
	Groups []string
}

// Identity names a writer.
type Identity struct {
	// User is the exact user name.
	User string
	// Group must be among the user's groups; empty asks for none, which is
	// right only for users whose credentials carry no group.
	Group string
}

// ServiceAccount is the identity of a service account.
func ServiceAccount(namespace, name string) Identity {
	return Identity{
		User:  "system:serviceaccount:" + namespace + ":" + name,
		Group: "system:serviceaccounts:" + namespace,
	}
}

// Is says whether i names u.
func (i Identity) Is(u User) bool {
	return i.User != "" && i.User == u.Name && (i.Group == "" || slices.Contains(u.Groups, i.Group))
}

// Class is what kind of writer somebody is to one Node. The values are public:
// they label metrics and audit annotations.
type Class string

const (
	// Kubelet is the Node's own kubelet or a stand-in. Never judged.
	Kubelet Class = "kubelet"
	// Lifecycle is a node lifecycle controller. Never judged; see Policy.Skew.
	Lifecycle Class = "lifecycle"
	// External is everybody else, cluster admins and other nodes' kubelets
	// included. Always judged.
	External Class = "external"
)

// Classes returns every class.
func Classes() []Class { return []Class{Kubelet, Lifecycle, External} }

const (
	nodesGroup     = "system:nodes"
	nodeUserPrefix = "system:node:"
)

// Class is what u is to the Node of that name.
func (p *Policy) Class(u User, node string) Class {
	switch {
	case isKubeletOf(u, node), anyIs(p.StandIns, u):
		return Kubelet
	case p.Controller.Is(u), anyIs(p.Lifecycle, u):
		return Lifecycle
	default:
		return External
	}
}

func isKubeletOf(u User, node string) bool {
	name, ok := strings.CutPrefix(u.Name, nodeUserPrefix)
	return ok && node != "" && name == node && slices.Contains(u.Groups, nodesGroup)
}

func anyIs(ids []Identity, u User) bool {
	return slices.ContainsFunc(ids, func(i Identity) bool { return i.Is(u) })
}

// Skew says whether w shows a kube-controller-manager that still runs in
// kubelet mode: a lifecycle identity other than our controller changes Ready
// to the reserved reason. Such a write is admitted and counted.
func (p *Policy) Skew(w Write) bool {
	if p.Class(w.User, w.Node) != Lifecycle || p.Controller.Is(w.User) {
		return false
	}
	is, ok := ready(w.After)
	return ok && w.changesReady() && is.Reason == reasonReserved
}
