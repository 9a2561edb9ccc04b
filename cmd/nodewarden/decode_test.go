package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Whatever is sent, reading it ends in a Node or in an error.
func FuzzDecodeNeverPanics(f *testing.F) {
	for _, text := range []string{
		before, "[1]", "{}", `{"status":{"conditions":[{"type":5}]}}`, "status: {conditions: [{lastHeartbeatTime: noon}]}", "a: &a [*a]", "{} {}", "...", `{"a":`, "metadata: {labels: {'': 5}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := decode(text, &corev1.Node{}); err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
	})
}
