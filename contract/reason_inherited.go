package contract

var reasonInherited = promise{
	name:      ReasonInherited,
	byDefault: Deny,
	about:     theEntry,
	refuses:   "the status became Unknown and reason and message are both still the old ones, or the reason is KubeletReady or KubeletNotReady",
	broken: func(l look) *Violation {
		kubelets := l.is.Reason == "KubeletReady" || l.is.Reason == "KubeletNotReady"
		kept := l.had && l.becameUnknown() && l.is.Reason == l.was.Reason && l.is.Message == l.was.Message
		if !kubelets && !kept {
			return nil
		}
		return &Violation{
			Field: readyPath("reason"), Was: quote(l.was.Reason), Is: quote(l.is.Reason),
			Problem: "is not the detector's own",
			Remedy:  "send reason and message together with the status; a patch without them keeps the kubelet's",
		}
	},
}
