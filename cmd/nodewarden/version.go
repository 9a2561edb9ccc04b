package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
)

func versionCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(s.out, "nodewarden %s (%s, %s/%s)\n", boot.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
