package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
)

// The policies and the contract are two statements of one table of rules. Under
// the race detector CEL is ten times slower, and a thirtieth of the ordinary
// hundred thousand writes must do.
func TestPolicyAndContractAgreeOnEveryWrite(t *testing.T) {
	t.Parallel()
	switch {
	case underRace:
		agree(t, seed(t, 1), 6, 500)
	case testing.Short():
		agree(t, seed(t, 1), 10, 500)
	default:
		agree(t, seed(t, 1), 40, 2_500)
	}
}

// Ten million writes, in half a million a part: an hour or two of both cores.
func TestSoakPolicyAndContractAgree(t *testing.T) {
	if os.Getenv("NODEWARDEN_SOAK") == "" {
		t.Skip("part of make soak")
	}
	for part := range uint64(20) {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			agree(t, seed(t, 7)+part, 50, 10_000)
		})
	}
}

// seed is NODEWARDEN_SEED, or that of every run.
func seed(t *testing.T, usual uint64) uint64 {
	t.Helper()
	text := os.Getenv("NODEWARDEN_SEED")
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("NODEWARDEN_SEED: %v", err)
	}
	return n
}

func agree(t *testing.T, seed uint64, policies, requests int) {
	t.Helper()
	t.Logf("seed %d", seed)
	seen := map[string]bool{}
	g := writes.From(seed)
	for range policies {
		p := g.Policy()
		b := enforceInBulk(t, p)
		for range requests {
			r := request(g.Write())
			want := expected(r, p)
			got, err := b.judge(r)
			if err != nil {
				t.Fatalf("an evaluation error is a defect: %v\n%s", err, show(r, p))
			}
			if !sameVerdict(got, want) {
				t.Fatalf("the policy says %q, the contract %q\n%s", got.broken, want.broken, show(r, p))
			}
			for _, b := range want.broken {
				rule, action, _ := strings.Cut(b, "=")
				seen[rule], seen[action] = true, true
			}
		}
	}
	for _, r := range contract.Rules() {
		if !seen[string(r)] && policies*requests > 10_000 {
			t.Errorf("no write broke %s: the generator does not reach it", r)
		}
	}
}

// What holds for a set of policies evaluated as one holds for each alone, with
// its own cost budget, message and audit annotation.
func TestEveryPolicyAloneAgreesToo(t *testing.T) {
	t.Parallel()
	policies, requests := 3, 200
	if underRace || testing.Short() {
		policies, requests = 1, 50
	}
	g := writes.From(2)
	for range policies {
		p := g.Policy()
		e := enforce(t, p)
		for range requests {
			r := request(g.Write())
			got, err := e.judge(r)
			if err != nil {
				t.Fatalf("an evaluation error is a defect: %v\n%s", err, show(r, p))
			}
			if want := expected(r, p); !sameVerdict(got, want) {
				t.Fatalf("the policies say %q, the contract %q\n%s", got.broken, want.broken, show(r, p))
			}
		}
	}
}

func show(r request, p contract.Policy) string {
	return "policy " + text(p) + "\nuser " + text(r.User) + "\nbefore " + text(r.Before) + "\nafter " + text(r.After)
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
