package controlplane

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAReadyBinaryIsTakenAsItIsOrRefusedByName(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kube")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ value, wantErr string }{
		"a program":   {program, ""},
		"no such one": {"/does/not/exist", "NODEWARDEN_KUBE: stat /does/not/exist"},
		"a folder":    {t.TempDir(), "is no program"},
		"a text":      {plain, "is no program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(BinaryEnv, c.value)
			got, err := Binary(t.Context(), nil)
			if c.wantErr == "" && (err != nil || got != c.value) {
				t.Errorf("got %s, %v", got, err)
			}
			if c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("%v does not say %q", err, c.wantErr)
			}
		})
	}
}

func TestTheHashChangesWithWhatTheBuildDependsOnAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, err := contentHash(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := write("go.mod", "module m\n\ngo 1.26.0\n")
	if write("notes.txt", "anything") != first || write("x_test.go", "package m") != first {
		t.Error("it depends on files that the build does not")
	}
	source := write("main.go", "package main")
	if source == first {
		t.Error("a new source file changes nothing")
	}
	if write("main.go", "package main // changed") == source {
		t.Error("a changed source file changes nothing")
	}
}

func TestOneBuildsAndTheOtherWaits(t *testing.T) {
	dir := t.TempDir()
	inside, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		first <- withLock(t.Context(), dir, new(bytes.Buffer), func() error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	var told bytes.Buffer
	second := make(chan error)
	go func() {
		second <- withLock(t.Context(), dir, &told, func() error { return errors.New("done at last") })
	}()
	select {
	case err := <-second:
		t.Fatalf("the second did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; err == nil || err.Error() != "done at last" {
		t.Errorf("the second: %v", err)
	}
	if !strings.Contains(told.String(), "Another process is building") {
		t.Errorf("it was told %q", told.String())
	}
}

func TestABinaryThatNobodyUsesIsForgottenInTime(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for name, used := range map[string]time.Time{"kube-old": now.Add(-2 * time.Hour), "kube-new": now} {
		binary := filepath.Join(dir, name, "kube")
		if err := os.Mkdir(filepath.Dir(binary), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(binary, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(binary, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := forgetUnused(dir, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "kube-new" {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestTheSourceIsFoundFromAnywhereInTheClone(t *testing.T) {
	here, err := sourceDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("cmd/controlplane")
	below, err := sourceDir()
	if err != nil || below != here {
		t.Errorf("from below: %s, %v, want %s", below, err, here)
	}
}
