// Package witness has what stories against a real API server see with: patience,
// and an ear for warnings.
package witness

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Eventually tries until it works, and fails the test with the last error when
// patience ends.
func Eventually(t testing.TB, patience time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never seen: %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Warnings are those an API server sent to one client. It is a
// rest.Config's WarningHandlerWithContext.
type Warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext keeps a warning.
func (w *Warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// Take returns the warnings since it was last called, oldest first.
func (w *Warnings) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}
