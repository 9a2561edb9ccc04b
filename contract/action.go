package contract

// Action is what an enforcer does about a broken rule. The values are public:
// they stand in the policy file and label metrics.
type Action string

const (
	// Deny refuses the write.
	Deny Action = "deny"
	// Warn admits the write and tells its author.
	Warn Action = "warn"
	// Audit admits the write silently; it is counted and annotated.
	Audit Action = "audit"
	// Off does not look.
	Off Action = "off"
)

// Actions returns every action, the strictest first.
func Actions() []Action { return []Action{Deny, Warn, Audit, Off} }

// Profile sets the actions of all rules at once. The values are public: they
// stand in the policy file.
type Profile string

const (
	// Enforce does what the table of rules says.
	Enforce Profile = "enforce"
	// WarnOnly turns every deny into a warning.
	WarnOnly Profile = "warn"
	// AuditOnly turns every deny and every warning into a silent count.
	AuditOnly Profile = "audit"
)

// Profiles returns every profile, the strictest first.
func Profiles() []Profile { return []Profile{Enforce, WarnOnly, AuditOnly} }

// soften returns what p makes of a rule's default action.
func (p Profile) soften(a Action) Action {
	switch {
	case p == WarnOnly && a == Deny:
		return Warn
	case p == AuditOnly && (a == Deny || a == Warn):
		return Audit
	default:
		return a
	}
}
