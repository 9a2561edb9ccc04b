// Command metrics writes the lists of docs/metrics.md from what the programs
// register: names, types, labels and help. What stands above the lists in that
// file is written by hand.
package main

import (
	"fmt"
	"os"
)

//go:generate go run .

// pagePath is the page, seen from this folder.
const pagePath = "../../../docs/metrics.md"

func main() {
	if err := write(pagePath); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

// write renews the lists in the page at path.
func write(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, _, err := split(string(old))
	if err != nil {
		return err
	}
	lists, err := render(programs)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(head+lists), 0o644)
}
