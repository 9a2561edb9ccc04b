package deploy

import (
	"os/exec"
	"testing"
)

func TestWhatIsGeneratedIsUpToDate(t *testing.T) {
	cmd := exec.Command("go", "run", "./deploy/generate", "-check")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
