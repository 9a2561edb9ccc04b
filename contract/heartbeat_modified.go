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
		remedy := "leave lastHeartbeatTime out of the patch, or send " + stamp(l.was.Heartbeat)
		switch {
		case l.was.Heartbeat.IsZero():
			remedy = "leave lastHeartbeatTime out: the kubelet has not set one"
		case l.is.Heartbeat.IsZero(): // a null, or a list that was replaced as a whole
			remedy = "leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send " + stamp(l.was.Heartbeat)
		}
		return &Violation{
			Field: readyPath("lastHeartbeatTime"), Was: stamp(l.was.Heartbeat), Is: stamp(l.is.Heartbeat),
			Problem: "is the kubelet's and must stay as it is",
			Remedy:  remedy,
		}
	},
}
