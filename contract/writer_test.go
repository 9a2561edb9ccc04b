package contract

import "testing"

func TestClass(t *testing.T) {
	p := strict()
	p.StandIns = []Identity{ServiceAccount("kwok", "kwok-controller"), {User: "system:node", Group: "system:nodes"}}
	nodes := []string{"system:nodes", "system:authenticated"}
	account := func(ns, name string) User {
		return User{"system:serviceaccount:" + ns + ":" + name, []string{"system:serviceaccounts", "system:serviceaccounts:" + ns}}
	}
	for name, c := range map[string]struct {
		user User
		want Class
	}{
		"a node's own kubelet":                               {User{"system:node:n1", nodes}, Kubelet},
		"another node's kubelet is external":                 {User{"system:node:n2", nodes}, External},
		"the name without the group is external":             {User{"system:node:n1", nil}, External},
		"the group without the name is external":             {User{"n1", nodes}, External},
		"a shared kubelet identity is one when listed":       {User{"system:node", nodes}, Kubelet},
		"a shared identity without the group is external":    {User{"system:node", nil}, External},
		"a listed stand-in":                                  {account("kwok", "kwok-controller"), Kubelet},
		"a stand-in's namesake elsewhere is external":        {account("kwok2", "kwok-controller"), External},
		"a user that only calls itself so is external":       {User{"system:serviceaccount:kwok:kwok-controller", nil}, External},
		"the in-tree controller's service account":           {account("kube-system", "node-controller"), Lifecycle},
		"the controller manager's certificate has no group":  {User{"system:kube-controller-manager", nil}, Lifecycle},
		"our own controller":                                 {account("nodewarden-system", "nodewarden-controller"), Lifecycle},
		"a cluster admin is external":                        {User{"admin", []string{"system:masters"}}, External},
		"nobody is external":                                 {User{}, External},
		"the empty name in system:nodes is nobody's kubelet": {User{"system:node:", nodes}, External},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.Class(c.user, "n1"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if got := p.Class(User{"system:node:", nodes}, ""); got != External {
		t.Errorf("the kubelet of a node without a name is %s", got)
	}
}

func TestSkewIsALifecycleControllerInKubeletMode(t *testing.T) {
	p := strict()
	inTree := User{Name: "system:kube-controller-manager"}
	ours := User{"system:serviceaccount:nodewarden-system:nodewarden-controller", []string{"system:serviceaccounts:nodewarden-system"}}
	for name, c := range map[string]struct {
		user  User
		write func(*Write)
		want  bool
	}{
		"the in-tree controller writes the reserved reason": {inTree, func(w *Write) { w.is().Reason = "NodeStatusUnknown" }, true},
		"the in-tree controller writes anything else":       {inTree, func(*Write) {}, false},
		"the in-tree controller touches other conditions":   {inTree, func(w *Write) { w.was().Reason = "NodeStatusUnknown"; *w.is() = *w.was() }, false},
		"our own controller in kubelet mode":                {ours, func(w *Write) { w.is().Reason = "NodeStatusUnknown" }, false},
		"a detector is refused instead":                     {detector, func(w *Write) { w.is().Reason = "NodeStatusUnknown" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := failure()
			w.User = c.user
			c.write(&w)
			if got := p.Skew(w); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
