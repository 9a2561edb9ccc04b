package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// life is one node seen over time: what is stored, and by the API server's
// clock. The kubelet's clock is off by skew.
type life struct {
	t     *testing.T
	skew  time.Duration
	ready Condition
	spoke time.Time
}

// begin is a node whose kubelet has been Ready for an hour.
func begin(t *testing.T, skew time.Duration) *life {
	l := &life{t: t, skew: skew}
	l.kubelet(at(-3600), "True")
	l.kubelet(noon, "True")
	return l
}

// kubelet reports at an instant of the API server's clock.
func (l *life) kubelet(now time.Time, status string) {
	own := now.Add(l.skew)
	if l.ready.Status != status {
		l.ready.Transition = own
	}
	l.ready.Type, l.ready.Status, l.ready.Reason, l.ready.Message = "Ready", status, "Kubelet", ""
	l.ready.Heartbeat, l.spoke = own, now
}

// writes lets a detector write at an instant with a stamp, and stores what is
// admitted. Every replica would say the same: the verdict has no memory.
func (l *life) writes(now, stamp time.Time, want ...Rule) {
	l.t.Helper()
	next := l.ready
	next.Status, next.Reason, next.Message, next.Transition = "Unknown", "OutOfBandProbeFailed", "no answer", stamp
	w := Write{
		Verb: Update, Node: "n1", User: detector,
		Before: []Condition{l.ready}, After: []Condition{next}, Spoke: l.spoke, Now: now,
	}
	refused := With(Deny, Check(w, strict()))
	if got := names(refused); !slices.Equal(got, want) {
		l.t.Errorf("at %s with stamp %s: broken %v, want %v", now.Format(time.TimeOnly), stamp.Format(time.TimeOnly), got, want)
	}
	if len(refused) == 0 {
		l.ready = next
	}
}

// kubeletClocks are how far a kubelet's clock may be off without any story
// ending differently.
var kubeletClocks = []time.Duration{-120 * time.Second, -5 * time.Second, 0, 5 * time.Second, 120 * time.Second}

func TestStory(t *testing.T) {
	for name, tell := range map[string]func(*life){
		"a first failure is recorded": func(l *life) {
			l.writes(at(40), at(40))
		},
		"an intent from before the recovery is stale": func(l *life) {
			l.writes(at(40), at(40))
			l.kubelet(at(60), "True")
			l.writes(at(75), at(40), NewerReady)
		},
		"a recovery is left alone for ten seconds, even by a detector that stamps the present": func(l *life) {
			l.writes(at(40), at(40))
			l.kubelet(at(60), "True")
			l.writes(at(63), at(63), RecoveryHold)
			l.writes(at(69), at(69), RecoveryHold)
			l.writes(at(70), at(70))
		},
		"a second failure is recorded like the first": func(l *life) {
			l.writes(at(40), at(40))
			l.kubelet(at(60), "True")
			l.kubelet(at(360), "True")
			l.writes(at(400), at(400))
		},
		"two detectors agree on one transition": func(l *life) {
			l.writes(at(40), at(40))
			l.writes(at(41), at(41), TransitionTimeMoved)
			l.writes(at(42), at(40)) // the second one rewords what the first one stored
		},
		"a restarted detector that re-sends what it last sent changes nothing": func(l *life) {
			l.writes(at(40), at(40))
			l.writes(at(100), at(40))
			l.kubelet(at(120), "True")
			l.writes(at(300), at(40), NewerReady)
		},
		"a failure of a node that was already False counts": func(l *life) {
			l.kubelet(at(10), "False")
			l.writes(at(50), at(50))
		},
		"a kubelet that flaps is recorded at most once per hold": func(l *life) {
			recorded := 0
			for s := 40; s < 100; s += 2 {
				before := l.ready.Status
				w := l.ready
				if before == "Unknown" {
					l.kubelet(at(s), "True")
					continue
				}
				w.Status, w.Reason, w.Message, w.Transition = "Unknown", "OutOfBandProbeFailed", "no answer", at(s)
				broken := Check(Write{Verb: Update, Node: "n1", User: detector, Before: []Condition{l.ready}, After: []Condition{w}, Spoke: l.spoke, Now: at(s)}, strict())
				if len(With(Deny, broken)) == 0 {
					l.ready = w
					recorded++
				}
			}
			if recorded != 5 { // at 40, 52, 64, 76 and 88 seconds
				l.t.Errorf("recorded %d failures in a minute of flapping, want 5", recorded)
			}
		},
	} {
		for _, skew := range kubeletClocks {
			t.Run(fmt.Sprintf("%s, the kubelet's clock off by %s", name, skew), func(t *testing.T) { tell(begin(t, skew)) })
		}
	}
}

func TestADetectorWhoseClockIsBehindStampsPastTheLastWord(t *testing.T) {
	l := begin(t, 0)
	behind := at(40).Add(-time.Minute)
	l.writes(at(40), behind, NewerReady)
	l.writes(at(40), l.spoke.Add(time.Second))
}

func TestStoryWithoutManagedFields(t *testing.T) {
	l := begin(t, 0)
	l.spoke = time.Time{}
	bare := func(now, stamp time.Time, want ...Rule) {
		t.Helper()
		l.spoke = time.Time{}
		l.writes(now, stamp, want...)
	}
	bare(at(40), noon, NewerReady)
	bare(at(40), at(40))
	l.kubelet(at(60), "True")
	bare(at(65), at(65), RecoveryHold)
	bare(at(75), at(40), NewerReady)
	bare(at(75), at(75))
}
