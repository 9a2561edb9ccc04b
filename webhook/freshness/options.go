package freshness

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Options say when a node counts as stalled, and how the watch behaves.
type Options struct {
	// StalledAfter is for how long a Ready of status True or False may go
	// unwritten: a number of the kubelets' status report periods.
	StalledAfter time.Duration
	// MaxNamedNodes is how many stalled nodes get series of their own. When
	// more are stalled, none does.
	MaxNamedNodes int
	// Silence is for how long nothing at all may arrive from the API server
	// before nodes are listed anew. Bookmarks arrive about once a minute.
	Silence time.Duration
	// Patience is for how long a Watch that has not listed nodes yet asks for
	// time in Ready.
	Patience time.Duration
}

// The defaults of an untouched install.
const (
	DefaultStalledAfter  = 15 * time.Minute
	DefaultMaxNamedNodes = 100
	DefaultSilence       = 3 * time.Minute
	DefaultPatience      = 30 * time.Second
)

// DefaultOptions returns the options of an untouched install.
func DefaultOptions() Options {
	return Options{
		StalledAfter: DefaultStalledAfter, MaxNamedNodes: DefaultMaxNamedNodes,
		Silence: DefaultSilence, Patience: DefaultPatience,
	}
}

// minSilence keeps a quiet cluster from being listed all the time.
const minSilence = time.Second

// Validate returns everything wrong with o. The first two paths are those of
// the policy file.
func (o Options) Validate() field.ErrorList {
	var errs field.ErrorList
	if o.StalledAfter <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("stalled"), o.StalledAfter.String(), "afterPeriods times statusReportPeriod must come to more than 0 and less than 292 years; choose a shorter statusReportPeriod"))
	}
	if o.MaxNamedNodes < 0 {
		errs = append(errs, field.Invalid(field.NewPath("stalled", "maxNamedNodes"), o.MaxNamedNodes, "must not be negative; 0 names nobody"))
	}
	if o.Silence < minSilence {
		errs = append(errs, field.Invalid(field.NewPath("silence"), o.Silence.String(), "must be at least "+minSilence.String()))
	}
	if o.Patience < 0 {
		errs = append(errs, field.Invalid(field.NewPath("patience"), o.Patience.String(), "must not be negative; 0 asks for no time"))
	}
	return errs
}
