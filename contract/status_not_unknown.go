package contract

var statusNotUnknown = promise{
	name:      StatusNotUnknown,
	byDefault: Deny,
	about:     theEntry,
	refuses:   "the new status is anything but Unknown",
	broken: func(l look) *Violation {
		if l.is.Status == statusUnknown {
			return nil
		}
		return &Violation{
			Field: readyPath("status"), Was: quote(l.was.Status), Is: quote(l.is.Status),
			Problem: "may only become Unknown",
			Remedy:  "send Unknown, or nothing: True, False and the recovery belong to the kubelet; whoever writes for kubelets is listed under standIns in the policy file",
		}
	},
}
