package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
	"github.com/nodewarden/nodewarden/controller"
	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

const header = "apiVersion: config.nodewarden.dev/v1alpha1\nkind: ControllerConfiguration\n"

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWithoutFlagsTheOptionsAreTheDefaults(t *testing.T) {
	s, err := parse(nil, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if s.options != controller.DefaultOptions() {
		t.Errorf("options %+v, want %+v", s.options, controller.DefaultOptions())
	}
}

func TestFlagsWinOverTheFileAndTheFileOverDefaults(t *testing.T) {
	path := file(t, header+"nodeMonitorPeriod: 3s\nnodeMonitorGracePeriod: 33s\nnodeLivenessSource: external\nmetricsBindAddress: 127.0.0.1:1\nfeatureGates: {ExternalNodeLivenessDetection: true}\nleaderElection: {leaderElect: false}\n")
	s, err := parse([]string{"--config", path, "--node-monitor-period=4s"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	o := s.options
	if o.NodeMonitorPeriod != 4*time.Second || o.NodeMonitorGracePeriod != 33*time.Second || o.NodeStartupGracePeriod != time.Minute ||
		o.LivenessSource != lifecycle.External || !o.ExternalEnabled || s.config.LeaderElection.LeaderElect || s.flags.MetricsAddress != "127.0.0.1:1" {
		t.Errorf("options %+v, configuration %+v, metrics at %s", o, s.config, s.flags.MetricsAddress)
	}
}

func TestWhatIsPrintedIsAFileThatComesToTheSame(t *testing.T) {
	args := []string{"--node-liveness-source=external", "--feature-gates=ExternalNodeLivenessDetection=true", "--node-eviction-rate=0.25", "--metrics-bind-address=:9", "--leader-elect-lease-duration=20s"}
	var first, second bytes.Buffer
	if _, err := parse(append(args, "--print-config"), &first); !errors.Is(err, boot.ErrDone) {
		t.Fatal(err)
	}
	if _, err := parse([]string{"--config=" + file(t, first.String()), "--print-config"}, &second); !errors.Is(err, boot.ErrDone) {
		t.Fatal(err)
	}
	if first.String() != second.String() || !strings.Contains(first.String(), "nodeEvictionRate: 0.25") {
		t.Errorf("first\n%s\nthen\n%s", first.String(), second.String())
	}
}

func TestBadInputNamesEveryProblemAtOnce(t *testing.T) {
	cases := map[string]struct {
		args []string
		want []string
	}{
		"flags": {
			[]string{"--node-liveness-source=external", "--mode=x", "--kube-api-qps=0", "--kube-api-burst=-1", "--leader-elect-retry-period=9s", "--external-nodes=a in (b"},
			[]string{"--node-liveness-source: ", "--mode: ", "--kube-api-qps: ", "--kube-api-burst: ", "--leader-elect-renew-deadline: ", "--external-nodes: "}},
		"an empty source":                   {[]string{"--node-liveness-source="}, []string{"--node-liveness-source: Unsupported"}},
		"a gate nobody knows":               {[]string{"--feature-gates=Nonsense=true"}, []string{"unrecognized feature gate: Nonsense"}},
		"a flag nobody knows":               {[]string{"--nonsense"}, []string{"unknown flag: --nonsense"}},
		"a missing file":                    {[]string{"--config=/does/not/exist"}, []string{"--config: open /does/not/exist"}},
		"unknown fields":                    {[]string{"--config=" + file(t, header+"nodeMonitorperiod: 1s\nleaderElection: {elect: true}\n")}, []string{`unknown field "nodeMonitorperiod"`, `unknown field "leaderElection.elect"`}},
		"a file of another kind":            {[]string{"--config=" + file(t, "apiVersion: v1\nkind: Node\n")}, []string{"apiVersion: Invalid", "kind: Invalid"}},
		"a key that comes twice":            {[]string{"--config=" + file(t, header+"mode: replace\nmode: beside\n")}, []string{`"mode" already set`}},
		"a gate in the file":                {[]string{"--config=" + file(t, header+"featureGates: {Nonsense: true}\n")}, []string{"unrecognized feature gate: Nonsense"}},
		"durations that are none":           {[]string{"--config=" + file(t, header+"nodeMonitorPeriod: soon\nleaderElection: {retryPeriod: 10}\n")}, []string{`nodeMonitorPeriod: Invalid value: "soon": is not a duration`, `leaderElection.retryPeriod: Invalid value: "10": is not a duration`}},
		"a duration that is empty":          {[]string{"--config=" + file(t, header+"nodeMonitorPeriod: ''\n")}, []string{`nodeMonitorPeriod: Invalid value: "": is not a duration`}},
		"two documents":                     {[]string{"--config=" + file(t, header+"---\n"+header)}, []string{"more than one YAML document"}},
		"two, after three dots":             {[]string{"--config=" + file(t, header+"...\n"+header)}, []string{"more than one YAML document"}},
		"a word where a number belongs":     {[]string{"--config=" + file(t, header+"nodeEvictionRate: slow\n")}, []string{`nodeEvictionRate: Invalid value: "string": something else belongs here`}},
		"numbers that are none in the file": {[]string{"--config=" + file(t, header+"nodeEvictionRate: .nan\nclientConnection: {qps: -.Inf}\n")}, []string{`nodeEvictionRate: Invalid value: ".nan": is no number`, `clientConnection.qps: Invalid value: "-.Inf": is no number`}},
		"values in the file":                {[]string{"--config=" + file(t, header+"nodeMonitorPeriod: 0s\nunhealthyZoneThreshold: 3\n")}, []string{"--node-monitor-period: ", "--unhealthy-zone-threshold: "}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.args, &bytes.Buffer{})
			var usage boot.UsageError
			if !errors.As(err, &usage) {
				t.Fatalf("no usage error: %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing from:\n%v", want, err)
				}
			}
		})
	}
}

func TestWhatCouldNeverWorkIsRefusedFromFlagAndFileAlike(t *testing.T) {
	const gate = "--feature-gates=ExternalNodeLivenessDetection=true"
	for name, c := range map[string]struct {
		flag, file string
		want       string
	}{
		"a rate that is no number":      {"--node-eviction-rate=NaN", "", "must be a number of nodes per second"},
		"a rate without end":            {"--node-eviction-rate=+Inf", "", "must be a number of nodes per second"},
		"the second rate":               {"--secondary-node-eviction-rate=NaN", "", "must be a number of nodes per second"},
		"a share that is no number":     {"--unhealthy-zone-threshold=NaN", "", "must be between 0 and 1"},
		"requests without end":          {"--kube-api-qps=Inf", "", "must be a number above 0"},
		"requests that are no number":   {"--kube-api-qps=NaN", "", "must be a number above 0"},
		"a selector of blanks":          {"--external-nodes= ", "externalNodes: ' '", "selects every node; name a label"},
		"a period that keeps a core":    {"--node-monitor-period=1ns", "nodeMonitorPeriod: 1ns", "must be at least 100ms"},
		"a lease of less than a second": {"--leader-elect-lease-duration=900ms", "leaderElection: {leaseDuration: 900ms, renewDeadline: 600ms, retryPeriod: 200ms}", "in whole seconds"},
		"a lease cut to its deadline":   {"--leader-elect-lease-duration=10900ms", "leaderElection: {leaseDuration: 10900ms}", "in whole seconds"},
		"a lease with no name for one":  {"--leader-elect-resource-name=Not a Name", "leaderElection: {resourceName: Not a Name}", "must name a Lease: "},
		"a namespace that is none":      {"--leader-elect-resource-namespace=kube.system", "leaderElection: {resourceNamespace: kube.system}", "must be a namespace: "},
	} {
		t.Run(name, func(t *testing.T) {
			field, _, _ := strings.Cut(c.flag, "=")
			calls := [][]string{{gate, c.flag}}
			if c.file != "" { // such numbers are found while the file is read
				calls = append(calls, []string{gate, "--config=" + file(t, header+c.file+"\n")})
			}
			for _, args := range calls {
				_, err := parse(args, &bytes.Buffer{})
				var usage boot.UsageError
				if !errors.As(err, &usage) {
					t.Fatalf("%q is no usage error: %v", args, err)
				}
				if !strings.Contains(err.Error(), field+": Invalid value: ") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%q says neither %q nor %q:\n%v", args, field, c.want, err)
				}
			}
		})
	}
}

func TestHelpMentionsEveryFlagOfTheInTreeController(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"--help"}, &out); !errors.Is(err, boot.ErrDone) {
		t.Fatal(err)
	}
	for _, flag := range []string{"node-monitor-period", "node-monitor-grace-period", "node-startup-grace-period", "node-eviction-rate", "secondary-node-eviction-rate", "large-cluster-size-threshold", "unhealthy-zone-threshold", "node-liveness-source", "external-nodes", "feature-gates", "mode", "leader-elect", "kube-api-qps", "kube-api-burst", "kubeconfig", "config", "print-config", "version"} {
		if !regexp.MustCompile(`--` + flag + `[\s\[]`).Match(out.Bytes()) {
			t.Errorf("--%s is missing", flag)
		}
	}
}
