package freshness

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
)

// life is a picture of some nodes, and the clock on its wall.
type life struct {
	*testing.T
	*picture
	clock *testclock.FakeClock
}

func begin(t *testing.T, listed ...built) *life {
	l := &life{T: t, clock: testclock.NewFakeClock(noon)}
	l.picture = newPicture(&ear{now: l.clock.Now})
	l.list(listed...)
	return l
}

// until lets time pass.
func (l *life) until(minutes float64) *life {
	l.clock.SetTime(at(minutes))
	return l
}

func (l *life) list(listed ...built) *life {
	l.Helper()
	l.asking()
	items := make([]any, len(listed))
	for i, b := range listed {
		items[i] = trim(b.Node)
	}
	return l.no(l.Replace(items, ""))
}

func (l *life) no(err error) *life {
	l.Helper()
	if err != nil {
		l.Error(err)
	}
	return l
}

func (l *life) event(b built) *life   { l.Helper(); return l.no(l.Update(b.Node)) }
func (l *life) added(b built) *life   { l.Helper(); return l.no(l.Add(b.Node)) }
func (l *life) deleted(b built) *life { l.Helper(); return l.no(l.Delete(b.Node)) }
func (l *life) bookmark() *life       { l.Helper(); return l.no(l.Bookmark("")) }
func (l *life) options() Options      { return DefaultOptions() }
func (l *life) figures() figures      { return l.look(l.options()) }
func (l *life) restart(b ...built) *life {
	l.Helper()
	l.picture = newPicture(l.ear)
	return l.list(b...)
}

// shows compares what a scrape would show now.
func (l *life) seen(wantStalled, wantLongUnknown int) *life {
	l.Helper()
	if f := l.figures(); f.stalled != wantStalled || f.longUnknown != wantLongUnknown {
		l.Errorf("at %s: %d stalled and %d long Unknown, want %d and %d", l.clock.Now().Format("15:04:05"), f.stalled, f.longUnknown, wantStalled, wantLongUnknown)
	}
	return l
}

func TestAWriterThatDiesIsSeenUntilSomebodyElseSpeaks(t *testing.T) {
	begin(t, heard("n", noon).by("kubelet", noon)).
		until(15).bookmark().seen(0, 0).
		until(15.1).bookmark().seen(1, 0).
		until(16).event(heard("n", noon).recorded("Unknown", at(16)).by("kubelet", noon).by("detector", at(16))).seen(0, 0).
		until(31.1).bookmark().seen(0, 1).
		until(32).event(heard("n", at(32)).recorded("True", at(32)).by("kubelet", at(32))).seen(0, 0).
		until(47.1).bookmark().seen(1, 0)
}

func TestARestartChangesNothing(t *testing.T) {
	n1, n2 := heard("n1", at(-20)).by("kubelet", at(-20)), heard("n2", noon).by("kubelet", noon)
	n3 := heard("n3", at(-200)).recorded("Unknown", at(-180)).by("detector", at(-180))
	begin(t, n1, n2, n3).seen(1, 1).restart(n1, n2, n3).seen(1, 1)
}

func TestWithoutManagedFieldsAChangeThatWasSeenCountsAsAWrite(t *testing.T) {
	// This kubelet's clock is 20 min behind.
	begin(t, heard("n", at(-20))).seen(1, 0).
		until(5).event(heard("n", at(-15))).seen(0, 0).
		until(20).bookmark().seen(0, 0).
		until(20.1).bookmark().seen(1, 0)
}

func TestAnEventThatLeavesReadyAloneIsNoWrite(t *testing.T) {
	relabelled := heard("n", at(-20))
	relabelled.Labels["pool"] = "b"
	begin(t, heard("n", at(-20))).until(1).event(relabelled).bookmark().seen(1, 0)
}

func TestWithoutAnyTimeANodeCountsFromWhenItWasFirstSeen(t *testing.T) {
	silent := heard("n", noon).dated(time.Time{}, time.Time{})
	begin(t, silent).until(10).event(silent).until(15).bookmark().seen(0, 0).
		until(15.1).bookmark().seen(1, 0)
}

func TestADeletedNodeIsForgottenAtOnce(t *testing.T) {
	n := heard("n", at(-20)).by("kubelet", at(-20))
	l := begin(t, n).seen(1, 0).deleted(n).seen(0, 0)
	if f := l.figures(); f.watched != 0 || len(f.named) != 0 {
		t.Errorf("still there: %+v", f)
	}
}

func TestANodeOfTheSameNameIsAnotherNode(t *testing.T) {
	old := heard("n", at(-21))
	begin(t, old).
		until(1).event(heard("n", at(-19))).seen(0, 0). // seen to change
		until(2).deleted(old).added(heard("n", at(-18)).uid("another")).bookmark().seen(1, 0).
		until(3).event(heard("n", at(-17)).uid("another")).seen(0, 0)
	// The same when the deletion was missed.
	begin(t, old).
		until(1).event(heard("n", at(-19))).seen(0, 0).
		until(2).list(heard("n", at(-19)).uid("another")).seen(1, 0)
}

func TestNobodyStallsBecauseWeAreDeaf(t *testing.T) {
	n := func(m float64) built { return heard("n", at(m)).by("kubelet", at(m)) }
	dead := heard("dead", at(-10)).by("kubelet", at(-10))
	l := begin(t, n(0), dead).until(60).seen(0, 0)
	if age := l.figures().age; age != time.Hour {
		t.Errorf("the picture says it is %s old, want 1h", age)
	}
	// The watch goes on where it stopped, with all that was missed.
	for m := 5.0; m <= 60; m += 5 {
		l.event(n(m))
		want := 0
		if m > 5 { // by then the dead node's silence is part of the picture
			want = 1
		}
		l.seen(want, 0)
	}
	if age := l.figures().age; age != 0 {
		t.Errorf("the picture says it is %s old, want none", age)
	}
	// Or everything is listed anew.
	begin(t, n(0), dead).until(60).list(n(60), dead).seen(1, 0)
}

func TestAListIsAsOldAsTheQuestion(t *testing.T) {
	l := begin(t, heard("n", noon).by("kubelet", noon)).until(14)
	l.asking()
	l.until(20).no(l.Replace([]any{heard("n", noon).by("kubelet", noon).Node}, "")).seen(0, 0)
	if age := l.figures().age; age != 6*time.Minute {
		t.Errorf("the picture says it is %s old, want 6m", age)
	}
}

func TestAStampFromTheFutureDoesNotPutThePictureThere(t *testing.T) {
	// Another API server's clock may be ahead of that we listen to.
	l := begin(t, heard("a", noon).by("kubelet", noon)).event(heard("b", noon).by("kubelet", at(600))).until(14).seen(0, 0)
	if age := l.figures().age; age != 14*time.Minute {
		t.Errorf("the picture says it is %s old, want 14m", age)
	}
}

func TestAStampOfTheFarFutureIsNotBelieved(t *testing.T) {
	far := noon.AddDate(5000, 0, 0)
	l := begin(t, heard("n", noon).by("kubelet", noon).by("forger", far)).until(15.1).bookmark().seen(1, 0)
	l.event(heard("n", at(15)).by("kubelet", at(15)).by("forger", far)).seen(0, 0)
	if f := l.figures(); len(f.writers) != 0 {
		t.Errorf("the external writers are %v, want none", f.writers)
	}
}

func TestTheAPIServersClockRules(t *testing.T) {
	for name, off := range map[string]time.Duration{"ours is 20 min ahead": -20 * time.Minute, "ours is right": 0, "ours is 20 min behind": 20 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			l := &life{T: t, clock: testclock.NewFakeClock(noon)}
			l.picture = newPicture(&ear{now: l.clock.Now})
			l.asking()                                                  // before we know the API server's clock
			l.ear.anchor.Store(&anchor{noon.Add(off), noon})            // its Date comes with the answer
			seen := func(m float64) time.Time { return at(m).Add(off) } // an instant by its clock
			n := func(m float64) *corev1.Node { return heard("n", seen(m)).by("kubelet", seen(m)).Node }
			l.no(l.Replace([]any{n(-14)}, "")).seen(0, 0)
			if age := l.figures().age; age != 0 {
				t.Errorf("straight after the list the picture says it is %s old", age)
			}
			l.until(1.1).bookmark().seen(1, 0)
			l.no(l.Update(n(1.1))).seen(0, 0)
			if age := l.figures().age; age != 0 {
				t.Errorf("the picture says it is %s old", age)
			}
		})
	}
}

func TestAWrongIdeaOfTheClockHeals(t *testing.T) {
	l := begin(t, heard("n", noon).by("kubelet", noon)) // our clock is an hour ahead, and no answer had a Date
	l.until(1).bookmark()
	l.ear.anchor.Store(&anchor{at(-59), at(1)})
	if f := l.figures(); f.stalled != 0 || f.age != 0 {
		t.Errorf("after the correction: %+v", f)
	}
	if age := l.bookmark().until(15).figures().age; age != 14*time.Minute {
		t.Errorf("deaf for 14m since, the picture says it is %s old", age)
	}
}

func TestAnOldStampDoesNotTakeThePictureBack(t *testing.T) {
	l := begin(t).until(5).event(heard("n", noon).by("kubelet", noon))
	if age := l.figures().age; age != 5*time.Minute {
		t.Errorf("listed 5m ago, the picture says it is %s old", age)
	}
	if age := l.bookmark().event(heard("m", noon).by("kubelet", noon)).figures().age; age != 0 {
		t.Errorf("after a bookmark the picture says it is %s old", age)
	}
}

func TestWhatIsNoNodeIsRefused(t *testing.T) {
	s := begin(t).picture
	for name, err := range map[string]error{
		"Add": s.Add(&corev1.Pod{}), "Update": s.Update(nil), "Delete": s.Delete("n"), "Replace": s.Replace([]any{1}, ""),
	} {
		if err == nil {
			t.Errorf("%s took it", name)
		}
	}
	if _, err := s.Transformer()(&corev1.Pod{}); err == nil {
		t.Error("the transformer took it")
	}
}
