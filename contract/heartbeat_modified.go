package contract

var heartbeatModified = promise{
	name:      HeartbeatModified,
	byDefault: Deny,
	about:     theEntry,
	refuses:   "the new lastHeartbeatTime differs from the stored one",
	broken: func(l look) *Violation {
		if l.is.Heartbeat.Equal(l.was.Heartbeat) {
			return nil
		}
		// Left out of a request that replaces the whole list, it would be erased.
		remedy := "leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send " + stamp(l.was.Heartbeat)
		if l.was.Heartbeat.IsZero() {
			remedy = "leave lastHeartbeatTime out: the kubelet has not set one"
		}
		return &Violation{
			Field: readyPath("lastHeartbeatTime"), Was: stamp(l.was.Heartbeat), Is: stamp(l.is.Heartbeat),
			Problem: "is the kubelet's and must stay as it is",
			Remedy:  remedy,
		}
	},
}
