package policy

import (
	"strconv"
	"strings"
	"time"
)

// Fragments of CEL. dyn keeps the API server's type checker from reading
// instants as timestamps: at run time they are text.
const (
	username = `request.userInfo.?username.orValue("")`
	groups   = `request.userInfo.?groups.orValue([])`
	nodeName = `request.?name.orValue("/")` // without one it is nobody's

	conditionsBefore = `(oldObject == null ? [] : dyn(oldObject).?status.?conditions.orValue([]))`
	conditionsAfter  = `dyn(object).?status.?conditions.orValue([])`
	beforeAndAfter   = `[` + conditionsBefore + `, ` + conditionsAfter + `]`
)

// quoted is s as a CEL string.
func quoted(s string) string { return strconv.QuoteToASCII(s) }

// anyOf is true where one of the expressions is; false for none.
func anyOf(expressions ...string) string {
	if len(expressions) == 0 {
		return "false"
	}
	return strings.Join(expressions, " ||\n")
}

func allOf(expressions ...string) string { return strings.Join(expressions, " &&\n") }

func not(expression string) string { return "!(" + expression + ")" }

// instant is a time field of condition c as text of whole seconds in UTC;
// absent, null and the zero time are empty, as in the contract.
func instant(c, field string) string {
	f := c + "." + field
	return `(` + c + `.?` + field + `.orValue(null) == null || ` + f + ` == "0001-01-01T00:00:00Z" ? "" : string(` + f + `))`
}

// at is the instant t in seconds, or 0 where it cannot be reckoned with. The
// texts of those that can are all 20 characters long and sort by time.
func at(t string) string {
	return `(size(` + t + `) == 20 && ` + t + ` >= "2000" && ` + t + ` < "2201" ? int(timestamp(` + t + `)) : 0)`
}

// instantOf is a number of seconds as an instant.
func instantOf(at string) string { return `string(timestamp(` + at + `))` }

// between is the seconds from one instant to another, or 0 where either
// cannot be reckoned with.
func between(from, to string) string {
	return `(` + from + ` > 0 && ` + to + ` > 0 ? ` + to + ` - ` + from + ` : 0)`
}

// atLeast is the number of whole seconds that reach d, atMost the number that
// does not exceed it: ages are whole seconds, d need not be.
func atLeast(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

func atMost(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// maxQuoted bounds how much of a value a message repeats, in characters.
const maxQuoted = 64

// shown is text as a message repeats it: quoted, on one line, of bounded length.
// strings.quote leaves some control characters as they are, and an API server
// drops a warning that holds one.
func shown(text string) string {
	n := strconv.Itoa(maxQuoted)
	return `[size(` + text + `) <= ` + n + ` ? ` + text + ` : ` + text + `.substring(0, ` + n + `)].map(s, s.matches(r"[\x00-\x06\x0e-\x1f\x7f-\x{9f}]") ? "(text with control characters)" :
  strings.quote(s) + (size(` + text + `) > ` + n + ` ? "..." : ""))[0]`
}

// stamp is an instant as a message shows it.
func stamp(t string) string { return `(` + t + ` == "" ? "none" : string(` + t + `))` }
