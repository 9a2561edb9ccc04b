package demo

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

func TestTheDemoTellsItsStoryToTheEnd(t *testing.T) {
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	var out bytes.Buffer
	err := Run(t.Context(), Options{Out: &out, Progress: os.Stderr})
	if t.Log(out.String()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "Everything was as it should be.\n") {
		t.Error("the story has no end")
	}
}
