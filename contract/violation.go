package contract

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Violation is one broken rule of one write.
type Violation struct {
	Rule Rule
	// Action is what the policy does about it; on Create at most Warn.
	Action Action
	// Field is the path of the offending field.
	Field string
	// Was and Is are the field's values before and after the write, ready to be
	// printed and of bounded length.
	Was, Is string
	// Problem says what is wrong, Remedy what to send instead.
	Problem, Remedy string
	// NotBefore is the earliest lastTransitionTime that would pass, where the
	// rule judges that stamp and a later one helps; else zero.
	NotBefore time.Time
}

// Error is the violation as one sentence: field, problem, both values, remedy.
func (v Violation) Error() string { return v.Field + " " + v.predicate() }

// Cause is the violation as the message of a status cause, which has the field
// beside it. kubectl shows nothing of a refusal but its causes, so the rule
// stands in brackets here as well.
func (v Violation) Cause() string { return "[" + string(v.Rule) + "] " + v.predicate() }

func (v Violation) predicate() string {
	return fmt.Sprintf("%s (was %s, is %s): %s", v.Problem, v.Was, v.Is, v.Remedy)
}

// Bracket lists the rules of broken in table order, as every enforcer's
// message begins: [ReservedReason,HeartbeatModified].
func Bracket(broken []Violation) string {
	names := make([]string, len(broken))
	for i, v := range broken {
		names[i] = string(v.Rule)
	}
	return "[" + strings.Join(names, ",") + "]"
}

// Message is the bracket, then a sentence a rule.
func Message(broken []Violation) string {
	sentences := make([]string, len(broken))
	for i, v := range broken {
		sentences[i] = v.Error()
	}
	return Bracket(broken) + " " + strings.Join(sentences, "; ")
}

// With returns the violations that the policy answers with a.
func With(a Action, broken []Violation) []Violation {
	var with []Violation
	for _, v := range broken {
		if v.Action == a {
			with = append(with, v)
		}
	}
	return with
}

const (
	// maxQuoted bounds how much of a value a message repeats, in bytes before quoting.
	maxQuoted = 64
	none      = "none"
)

func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format(time.RFC3339)
}

// seconds is d as every enforcer can write it, CEL among them.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }

func readyPath(field string) string { return "status.conditions[Ready]." + field }
