package freshness

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nodewarden/nodewarden/contract"
)

func TestASilentDetectorAmongSeveralIsSeen(t *testing.T) {
	l := begin(t,
		heard("a", noon).by("kubelet", noon).by("probes", at(-30)),
		heard("b", noon).by("kubelet", noon).by("bmc", at(-50)),
		heard("d", noon).by("kubelet", noon).by("probes", at(-45)),
		heard("c", noon).by("kube-controller-manager", at(-1)).by("ancient-changes", at(-5)),
	)
	l.until(1).event(heard("a", at(1)).by("kubelet", at(1))). // the kubelet took all fields of Ready over
									until(2).event(heard("b", noon).by("kubelet", noon).by("probes", at(2)))
	got := l.event(heard("e", noon).by("probes", at(-40))).figures().writers
	if len(got) != 2 || !got["probes"].Equal(at(2)) || !got["bmc"].Equal(at(-50)) {
		t.Errorf("external writers: %v", got)
	}
}

func TestWritersAreBounded(t *testing.T) {
	w := writers{}
	for i := range 3 * maxWriters {
		w.saw([]contract.ReadyWriter{{Manager: fmt.Sprintf("m%d", i), At: at(float64(i))}}, at(1000))
	}
	w.saw([]contract.ReadyWriter{{Manager: "m0", At: at(1000)}}, at(1000))
	if len(w) != maxWriters+1 || !w[otherWriters].Equal(at(3*maxWriters-1)) || !w["m0"].Equal(at(1000)) {
		t.Errorf("%d writers, other last wrote at %s, m0 at %s", len(w), w[otherWriters], w["m0"])
	}
}

func TestAWriterIsForgottenThirtyDaysAfterItsLastWrite(t *testing.T) {
	w := writers{}
	w.saw([]contract.ReadyWriter{{Manager: "retired", At: noon}, {Manager: "probes", At: noon.Add(time.Hour)}}, noon)
	if got := w.recent(noon.Add(forgotten)); len(got) != 2 {
		t.Errorf("after %s: %v", forgotten, got)
	}
	if got := w.recent(noon.Add(forgotten + time.Minute)); len(got) != 1 || got["probes"].IsZero() {
		t.Errorf("a minute later: %v", got)
	}
}

func TestRetiredWritersTakeNoLabelFromThoseWhoWrite(t *testing.T) {
	now := noon.Add(2 * forgotten)
	w := writers{}
	for i := range 2 * maxWriters {
		w.saw([]contract.ReadyWriter{{Manager: fmt.Sprintf("retired-%d", i), At: noon}}, now)
	}
	w.saw([]contract.ReadyWriter{{Manager: "probes", At: now}}, now)
	if len(w) != 1 || !w["probes"].Equal(now) {
		t.Errorf("the writers are %v, want probes alone", w)
	}
}

func TestAManagersNameMakesAGoodLabel(t *testing.T) {
	for in, want := range map[string]string{
		"": unrecorded, "detector": "detector", "a\nb\x00c\x7f": "a b c ", "bad\xffutf8": "badutf8",
		strings.Repeat("x", 128): strings.Repeat("x", maxLabel),
		strings.Repeat("é", 64):  strings.Repeat("é", maxLabel/2), "x" + strings.Repeat("é", 64): "x" + strings.Repeat("é", maxLabel/2-1),
	} {
		if got := label(in); got != want || !utf8.ValidString(got) {
			t.Errorf("label(%q) = %q, want %q", in, got, want)
		}
	}
}
