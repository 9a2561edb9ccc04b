package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

type editOptions struct {
	nodeLease     string
	leaseDuration seconds
	durationGiven bool
	write         bool
}

func editCommand(s Streams) *cobra.Command {
	var o editOptions
	cmd := &cobra.Command{
		Use:   "edit FILE... [--node-lease on|off] [--lease-duration-seconds N]",
		Short: "Change the Lease settings in files that exist, and nothing else",
		Long: `Change the Lease settings in files that exist, and nothing else.

Comments, order, unknown fields and line ends stay. --node-lease=off sets
enableNodeLease: false and the feature gate it needs, on sets it to true. Lint
the result: a kubelet before 1.38 does not start with that gate. A file in which
the change cannot be made in place is refused; nothing is written then.

Without --write the result of a single file is printed.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			o.durationGiven = cmd.Flags().Changed("lease-duration-seconds")
			return edit(s, o, files)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.nodeLease, "node-lease", "", "on or off")
	f.Var(&o.leaseDuration, "lease-duration-seconds", "nodeLeaseDurationSeconds, at least 1")
	f.BoolVarP(&o.write, "write", "w", false, "write the files back")
	return cmd
}

// seconds is an int32 that says so when it is none.
type seconds int32

// Set reads it.
func (s *seconds) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("out of range; it must be from 1 to %d", math.MaxInt32)
	case err != nil:
		return errors.New("must be an integer")
	}
	*s = seconds(n)
	return nil
}

// String is the number.
func (s *seconds) String() string { return strconv.Itoa(int(*s)) }

// Type is what --help calls it.
func (s *seconds) Type() string { return "int32" }

func edit(s Streams, o editOptions, files []string) error {
	changes, err := o.changes()
	if err != nil {
		return err
	}
	if !o.write && len(files) > 1 {
		return errors.New("more than one file needs --write")
	}
	edited := make([][]byte, len(files))
	var errs []error
	for i, name := range files {
		edited[i], err = editFile(name, changes)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !o.write {
		_, err := s.Out.Write(edited[0])
		return err
	}
	for i, name := range files {
		if err := writeBack(s, name, edited[i]); err != nil {
			return err
		}
	}
	return nil
}

func (o editOptions) changes() ([]kubeletcfg.Change, error) {
	var changes []kubeletcfg.Change
	switch o.nodeLease {
	case "":
	case "on":
		changes = kubeletcfg.LeaseOnChanges()
	case "off":
		changes = kubeletcfg.LeaseOffChanges()
	default:
		return nil, fmt.Errorf("--node-lease: %q is neither on nor off", o.nodeLease)
	}
	if o.durationGiven {
		if o.leaseDuration < 1 {
			return nil, fmt.Errorf("--lease-duration-seconds: %d must be at least 1; 0 means the default to a kubelet, and less stops it", o.leaseDuration)
		}
		changes = append(changes, kubeletcfg.LeaseDurationChange(int32(o.leaseDuration)))
	}
	if len(changes) == 0 {
		return nil, errors.New("nothing to change: give --node-lease or --lease-duration-seconds")
	}
	return changes, nil
}

func editFile(name string, changes []kubeletcfg.Change) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	edited, err := kubeletcfg.Edit(data, changes...)
	return edited, inFile(name, err)
}

// inFile puts the name of a file before each of the errors that err joins.
func inFile(name string, err error) error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, one := range joined.Unwrap() {
		errs = append(errs, fmt.Errorf("%s: %w", name, one))
	}
	return errors.Join(errs...)
}

func writeBack(s Streams, name string, edited []byte) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	verb := "unchanged"
	if !bytes.Equal(old, edited) {
		verb = "changed"
		if err := Replace(name, edited); err != nil {
			return Fault{err}
		}
	}
	_, err = fmt.Fprintf(s.Out, "%s: %s\n", name, verb)
	return err
}
