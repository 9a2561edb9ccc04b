package contract

import "testing"

func TestProfilesSoftenTheTableAndOverridesStand(t *testing.T) {
	for name, c := range map[string]struct {
		policy Policy
		rule   Rule
		want   Action
	}{
		"enforce does what the table says":        {Policy{Profile: Enforce}, ReservedReason, Deny},
		"the zero policy enforces":                {Policy{}, ReservedReason, Deny},
		"warn turns deny into a warning":          {Policy{Profile: WarnOnly}, ReservedReason, Warn},
		"warn leaves warnings":                    {Policy{Profile: WarnOnly}, ClockSkew, Warn},
		"audit silences denials":                  {Policy{Profile: AuditOnly}, ReservedReason, Audit},
		"audit silences warnings":                 {Policy{Profile: AuditOnly}, ClockSkew, Audit},
		"off stays off":                           {Policy{Profile: Enforce}, SignalTooYoung, Off},
		"one rule can be denied in a soft policy": {Policy{Profile: AuditOnly, Rules: map[Rule]Action{ReservedReason: Deny}}, ReservedReason, Deny},
		"one rule can be off in a strict one":     {Policy{Profile: Enforce, Rules: map[Rule]Action{ReservedReason: Off}}, ReservedReason, Off},
		"a rule that is none is off":              {Policy{}, "Nonsense", Off},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.Action(c.rule); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The table of docs/contract.md.
func TestDefaults(t *testing.T) {
	soft := map[Rule]Action{
		OtherConditionChanged: Warn, LabelsChanged: Warn, ReasonUnclear: Warn, ClockSkew: Warn,
		SignalTooYoung: Off, UnauthorizedDetector: Off,
	}
	for _, r := range Rules() {
		want := Deny
		if a, ok := soft[r]; ok {
			want = a
		}
		if r.Default() != want || r.Refuses() == "" {
			t.Errorf("%s: default %s, want %s; refused when %q", r, r.Default(), want, r.Refuses())
		}
	}
	if len(Rules()) != 20 {
		t.Errorf("%d rules", len(Rules()))
	}
}
