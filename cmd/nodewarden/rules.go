package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nodewarden/nodewarden/contract"
)

func rulesCommand(s streams) *cobra.Command {
	var f policyFlags
	cmd := &cobra.Command{
		Use:   "rules [RULE]",
		Short: "List the rules of the contract, or explain one",
		Long: `List the rules of the contract with what the policy does about a write that
breaks them, in the order in which every enforcer reports them; or explain one.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := f.load()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return explain(s.out, args[0], p)
			}
			return listRules(s.out, p)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func listRules(out io.Writer, p contract.Policy) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tACTION\tBROKEN WHEN")
	for _, r := range contract.Rules() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r, p.Action(r), r.Refuses())
	}
	return w.Flush()
}

func explain(out io.Writer, name string, p contract.Policy) error {
	r := contract.Rule(name)
	if !r.Known() {
		return fmt.Errorf("there is no rule %q: want one of %s", name, joined(contract.Rules()))
	}
	fmt.Fprintf(out, "%s\n", r)
	fmt.Fprintf(out, "  broken when   %s\n", r.Refuses())
	fmt.Fprintf(out, "  by default    %s\n", r.Default())
	create := "; at most warn when a Node is created"
	if !r.JudgesCreation() {
		create = "; the creation of a Node cannot break it"
	}
	fmt.Fprintf(out, "  in this policy %s%s\n", p.Action(r), create)
	for _, setting := range settings(r, p) {
		fmt.Fprintf(out, "  %s\n", setting)
	}
	if r.JudgesTransitionTime() {
		fmt.Fprintln(out, "  of the rules on a new lastTransitionTime, only the first broken one is reported")
	}
	_, err := fmt.Fprintf(out, "  change it with rules: {%s: deny|warn|audit|off} in the policy file\n", r)
	return err
}

// settings are the values in the policy that a rule reads.
func settings(r contract.Rule, p contract.Policy) []string {
	switch r {
	case contract.RecoveryHold:
		return []string{"recoveryHold  " + p.RecoveryHold.String()}
	case contract.SignalTooYoung:
		return []string{"signalPersistence " + p.SignalPersistence.String()}
	case contract.ClockSkew:
		return []string{"maxClockSkew  " + p.MaxClockSkew.String()}
	case contract.UnauthorizedDetector:
		return []string{fmt.Sprintf("detectors     %d listed", len(p.Detectors))}
	default:
		return nil
	}
}

func joined(rules []contract.Rule) string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
