package controlplane

import (
	"context"
	"flag"
	"fmt"
	"os"
)

// TB is what ForTest needs of a *testing.T or *testing.B. It keeps package
// testing out of programs that start a control plane.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
}

// ForTest starts a control plane that ends with the test. When the test has
// failed by then, the last lines of every component are logged. Under
// go test -short the test is skipped.
func ForTest(t TB, o Options) *ControlPlane {
	t.Helper()
	if Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	cp, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the control plane wrote last:\n%s", cp.Tails(15))
		}
		if err := cp.Stop(); err != nil {
			t.Logf("stop the control plane: %v", err)
		}
	})
	return cp
}

// Short reports whether this is a test run with -short. A TestMain that shares
// one control plane among the tests of a package should not start it then.
func Short() bool {
	f := flag.Lookup("test.short")
	if f == nil {
		return false
	}
	if !flag.Parsed() {
		flag.Parse() // a TestMain runs before the testing package has
	}
	return f.Value.String() == "true"
}

// Main runs the tests of a package that share one control plane: it starts it
// before them, unless the run is a short one, and stops it after. When one has
// failed, the last lines of every component are printed. It returns the exit code
// for TestMain.
func Main(m interface{ Run() int }, shared **ControlPlane) int {
	if Short() {
		return m.Run()
	}
	cp, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*shared = cp
	code := m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "what the control plane wrote last:\n%s", cp.Tails(15))
	}
	if err := cp.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		return 1
	}
	return code
}
