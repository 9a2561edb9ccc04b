package contract

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// random draws a write from a small world, in which collisions are frequent.
func random(r *rand.Rand) Write {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	instant := func() time.Time {
		switch r.IntN(12) {
		case 0:
			return time.Time{}
		case 1:
			return time.Date(r.IntN(10001), 6, 1, 0, 0, 0, 0, time.UTC)
		default:
			return at(r.IntN(60) - 20)
		}
	}
	condition := func() Condition {
		return Condition{
			Type: pick("Ready", "Ready", "Ready", "MemoryPressure", "DiskPressure", "Other"), Status: pick("True", "False", "Unknown", "Unknown", ""),
			Reason:  pick("KubeletReady", "NodeStatusUnknown", "NodeStatusNeverUpdated", "Own", "Own", "own word", ""),
			Message: pick("", "m"), Heartbeat: instant(), Transition: instant(),
		}
	}
	list := func() []Condition {
		var out []Condition
		for range r.IntN(5) {
			out = append(out, condition())
		}
		return out
	}
	w := Write{Verb: Update, Node: "n1", User: detector, Before: list(), Spoke: instant(), Now: instant()}
	w.After = list()
	if r.IntN(3) > 0 && len(w.Before) > 0 { // most writes change little
		w.After = slices.Clone(w.Before)
		w.After[r.IntN(len(w.After))] = condition()
	}
	w.Touched.Labels, w.Touched.Finalizers = r.IntN(8) == 0, r.IntN(8) == 0
	if r.IntN(8) == 0 {
		w.Verb, w.Before, w.Spoke, w.Touched = Create, nil, time.Time{}, Touched{}
	}
	w.Labels = map[string]string{"pool": pick("a", "b")}
	if r.IntN(6) == 0 {
		w.User.Name = pick("system:node:n1", "system:node:n2", "admin")
		w.User.Groups = append(slices.Clone(w.User.Groups), pick("system:nodes", "system:masters"))
	}
	return w
}

func policies() []Policy { return []Policy{strict(), Default(WarnOnly), listing(), patient(), {}} }

// eachRandom calls f with many random writes and policies.
func eachRandom(t *testing.T, n int, f func(w Write, p Policy, broken []Violation)) {
	t.Helper()
	r := rand.New(rand.NewPCG(6371, 1))
	for i := 0; i < n && !t.Failed(); i++ {
		w := random(r)
		for _, p := range policies() {
			f(w, p, Check(w, p))
		}
	}
}

const manyWrites = 5_000

func TestBrokenRulesComeInTableOrderEachOnceAndOnlyOneOnTheStamp(t *testing.T) {
	order := Rules()
	eachRandom(t, manyWrites, func(w Write, _ Policy, broken []Violation) {
		last, stamps := -1, 0
		for _, v := range broken {
			i := slices.Index(order, v.Rule)
			if i <= last {
				t.Errorf("%v out of order for %+v", names(broken), w)
			}
			last = i
			if v.Rule.JudgesTransitionTime() {
				stamps++
			}
		}
		if stamps > 1 {
			t.Errorf("%v: more than one rule on the stamp for %+v", names(broken), w)
		}
	})
}

func TestTheEarliestInstantPassesAndTheOneBeforeDoesNot(t *testing.T) {
	found := map[Rule]int{}
	eachRandom(t, manyWrites, func(w Write, p Policy, broken []Violation) {
		for _, v := range broken {
			if v.NotBefore.IsZero() {
				continue
			}
			found[v.Rule]++
			try := func(stamp time.Time) []Violation {
				next := w
				next.After = slices.Clone(w.After)
				next.is().Transition = stamp
				return slices.DeleteFunc(Check(next, p), func(v Violation) bool { return !v.Rule.JudgesTransitionTime() || v.NotBefore.IsZero() })
			}
			if left := try(v.NotBefore); len(left) > 0 {
				t.Errorf("%s promised %s, which broke %v: %+v", v.Rule, v.NotBefore, names(left), w)
			}
			if !w.After[0].Transition.IsZero() && v.Rule == NewerReady && len(try(v.NotBefore.Add(-time.Second))) == 0 &&
				!v.NotBefore.Add(-time.Second).Equal(w.was().Transition) {
				t.Errorf("%s promised %s, and a second earlier passed as well: %+v", v.Rule, v.NotBefore, w)
			}
		}
	})
	for _, r := range []Rule{TransitionTimeMissing, TransitionTimeImplausible, TransitionTimeUnchanged, NewerReady, RecoveryHold, SignalTooYoung} {
		if found[r] == 0 {
			t.Errorf("no random write broke %s: the test proves nothing for it", r)
		}
	}
}

func TestAWriteThatLeavesReadyAloneBreaksNothing(t *testing.T) {
	eachRandom(t, manyWrites, func(w Write, p Policy, _ []Violation) {
		w.After = slices.Clone(w.Before)
		w.After = append(w.After, Condition{Type: "New", Status: "True"})
		w.Touched.Labels = false
		if broken := Check(w, p); len(broken) > 0 {
			t.Errorf("%v for %+v", names(broken), w)
		}
	})
}

func TestKubeletsAndLifecycleControllersAreNeverJudged(t *testing.T) {
	eachRandom(t, manyWrites, func(w Write, _ Policy, _ []Violation) {
		p := strict()
		for _, u := range []User{{Name: "system:node:n1", Groups: []string{"system:nodes"}}, {Name: "system:kube-controller-manager"}} {
			w.User = u
			if broken := Check(w, p); len(broken) > 0 {
				t.Errorf("%s broke %v", u.Name, names(broken))
			}
		}
	})
}

func TestNothingIsDeniedOnCreate(t *testing.T) {
	warned := 0
	eachRandom(t, manyWrites, func(w Write, _ Policy, broken []Violation) {
		if w.Verb != Create {
			return
		}
		if len(With(Deny, broken)) > 0 {
			t.Errorf("%v denied on CREATE", names(broken))
		}
		warned += len(With(Warn, broken))
	})
	if warned == 0 {
		t.Error("nothing was warned of either")
	}
}

func TestACreationBreaksEveryRuleThatJudgesItAndNoOther(t *testing.T) {
	broke := map[Rule]bool{}
	eachRandom(t, manyWrites, func(w Write, _ Policy, broken []Violation) {
		for _, r := range names(broken) {
			broke[r] = broke[r] || w.Verb == Create
		}
	})
	for _, r := range Rules() {
		if broke[r] != r.JudgesCreation() {
			t.Errorf("%s: a creation broke it: %v; JudgesCreation says %v", r, broke[r], r.JudgesCreation())
		}
	}
}

func TestASofterProfileBreaksTheSameRules(t *testing.T) {
	eachRandom(t, manyWrites, func(w Write, _ Policy, _ []Violation) {
		hard := names(Check(w, strict()))
		for _, p := range []Profile{WarnOnly, AuditOnly} {
			soft := Check(w, Default(p))
			if !slices.Equal(names(soft), hard) {
				t.Errorf("enforce %v, %s %v", hard, p, names(soft))
			}
			for _, v := range soft {
				if v.Action == Deny || p == AuditOnly && v.Action != Audit {
					t.Errorf("%s: %s is answered with %s", p, v.Rule, v.Action)
				}
			}
		}
	})
}

func FuzzCheck(f *testing.F) {
	f.Add(uint64(1), "Ready", "Unknown", "Own", "m", int64(40), int64(0))
	f.Add(uint64(2), "Ready", "True", "NodeStatusUnknown", "\n", int64(-62135596800), int64(253402300799))
	f.Fuzz(func(t *testing.T, seed uint64, typ, status, reason, message string, transition, heartbeat int64) {
		w := random(rand.New(rand.NewPCG(seed, 2)))
		w.After = append(w.After, Condition{Type: typ, Status: status, Reason: reason, Message: message, Transition: time.Unix(transition, 0).UTC(), Heartbeat: time.Unix(heartbeat, 0).UTC()})
		for _, p := range policies() {
			if text := Message(Check(w, p)); len(text) > 8<<10 {
				t.Errorf("a message of %d bytes", len(text))
			}
		}
	})
}
