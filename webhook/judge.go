package webhook

import (
	"github.com/nodewarden/nodewarden/contract"
)

// judge decides on one review, and counts and logs the decision.
func (h *Handler) judge(r *review) answer {
	a := answer{uid: r.uid, node: r.write.Node}
	if !r.watched() {
		h.metrics.answered(outOfScope, noClass, r.dryRun)
		a.warnings = []string{"nodewarden does not judge this request (" + r.target() + "); its webhook should not be called for it"}
		return a
	}
	a.class = h.policy.Class(r.user, r.write.Node)
	a.broken = contract.Check(r.write, h.policy)
	a.refused = len(contract.With(contract.Deny, a.broken)) > 0
	a.warnings = warnings(a.broken)
	v := h.verdict(r, &a)
	h.metrics.answered(v, a.class, r.dryRun)
	if !r.dryRun {
		h.count(r, &a)
	}
	h.tell(v, r, &a)
	return a
}

func (h *Handler) verdict(r *review, a *answer) verdict {
	switch {
	case a.refused:
		return refused
	case len(a.warnings) > 0:
		return warned
	case a.class == contract.External && !h.policy.InScope(r.write):
		return outOfScope
	default:
		return admitted
	}
}

// count counts what only a real write may move.
func (h *Handler) count(r *review, a *answer) {
	h.metrics.broke(a.broken, r.user)
	if h.policy.Skew(r.write) {
		h.metrics.skewed()
	}
}

// tell logs one line a refusal. Writers that are never judged leave no trace.
func (h *Handler) tell(v verdict, r *review, a *answer) {
	if v == refused {
		h.log.Info("refused a write to Ready", r.facts(a)...)
	}
	if log := h.log.V(1); v == warned && log.Enabled() {
		log.Info("admitted a write to Ready with warnings", r.facts(a)...)
	}
}

// facts are the keys and values of a log line, of bounded length.
func (r *review) facts(a *answer) []any {
	return []any{
		"node", bounded(r.write.Node, maxLogged), "writer", bounded(r.user.Name, maxLogged),
		"rules", ruleNames(a.broken), "dryRun", r.dryRun,
	}
}

// maxWarning bounds a warning, in bytes. An API server cuts warnings to 256
// runes where all that one request caused are longer than 4,096.
const maxWarning = 512

// warnings returns one warning for each rule that the policy answers with one.
func warnings(broken []contract.Violation) []string {
	var texts []string
	for _, v := range contract.With(contract.Warn, broken) {
		texts = append(texts, bounded(contract.Message([]contract.Violation{v}), maxWarning))
	}
	return texts
}
