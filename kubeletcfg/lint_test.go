package kubeletcfg_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

// config is a KubeletConfiguration with these lines in it.
func config(lines ...string) string {
	return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + strings.Join(lines, "\n") + "\n"
}

// node is the command line of one kubelet.
type node struct {
	version string
	main    string
	dropIns map[string]string
	flags   map[string]bool
}

func (n node) lint(t *testing.T) kubeletcfg.Report {
	t.Helper()
	v, err := kubeletcfg.ParseVersion(n.version)
	if err != nil {
		t.Fatal(err)
	}
	in := kubeletcfg.Input{Version: v, FeatureGates: n.flags, MainDir: "/"}
	if n.main != "" {
		in.Main = &kubeletcfg.File{Name: "config.yaml", Data: []byte(n.main)}
	}
	for name, text := range n.dropIns {
		in.DirName = "conf.d"
		in.Dir = append(in.Dir, kubeletcfg.File{Name: name, Data: []byte(text)})
	}
	return kubeletcfg.Lint(in)
}

// outcomes is the findings without their words.
func outcomes(r kubeletcfg.Report) []string {
	var out []string
	for _, f := range r.Findings {
		where := kubeletcfg.Origin{File: f.File, Line: f.Line}.String()
		out = append(out, where+" "+f.Path+": "+string(f.Outcome))
	}
	return out
}

const gateOn = "featureGates: {ExternalNodeLivenessDetection: true}"

func TestTheLeaseFieldNeedsItsVersionAndItsGate(t *testing.T) {
	off := config("enableNodeLease: false")
	both := config("enableNodeLease: false", gateOn)
	for name, c := range map[string]struct {
		node
		leaseOff, stops bool
		want            []string
	}{
		"before 1.38 the field is ignored with a warning": {
			node: node{version: "1.37.2", main: off},
			want: []string{"config.yaml:3 enableNodeLease: ignored with a warning"},
		},
		"before 1.38 the field is lost without a word in a drop-in": {
			node: node{version: "1.37.2", main: config(), dropIns: map[string]string{"90.conf": off}},
			want: []string{"conf.d/90.conf:3 enableNodeLease: ignored silently"},
		},
		"before 1.38 the gate stops the kubelet": {
			node: node{version: "1.37.2", main: both}, stops: true,
			want: []string{
				"config.yaml:4 featureGates.ExternalNodeLivenessDetection: would not start",
				"config.yaml:3 enableNodeLease: ignored with a warning",
			},
		},
		"an alpha of 1.38 is taken for a kubelet without it": {
			node: node{version: "v1.38.0-alpha.1", main: both}, stops: true,
			want: []string{
				"config.yaml:4 featureGates.ExternalNodeLivenessDetection: would not start",
				"config.yaml:3 enableNodeLease: ignored with a warning",
			},
		},
		"a vendor's 1.38 has it":          {node: node{version: "v1.38.1-gke.100", main: both}, leaseOff: true},
		"from 1.38 on both together work": {node: node{version: "1.38.0", main: both}, leaseOff: true},
		"the gate may come from the flag": {node: node{version: "1.38.0", main: off, flags: map[string]bool{kubeletcfg.NodeLeaseGate: true}}, leaseOff: true},
		"AllAlpha turns the gate on too":  {node: node{version: "1.38.0", main: config("enableNodeLease: false", "featureGates: {AllAlpha: true, AllBeta: true}")}, leaseOff: true},
		"without the gate the field is ignored with a warning": {
			node: node{version: "1.38.0", main: off},
			want: []string{"config.yaml:3 enableNodeLease: ignored with a warning"},
		},
		"a flag that turns the gate off wins over the file": {
			node: node{version: "1.38.0", main: both, flags: map[string]bool{kubeletcfg.NodeLeaseGate: false}},
			want: []string{"config.yaml:3 enableNodeLease: ignored with a warning"},
		},
		"a drop-in that deletes the gate takes the field with it": {
			node: node{version: "1.38.0", main: both, dropIns: map[string]string{"10.conf": config("featureGates: {ExternalNodeLivenessDetection: null}")}},
			want: []string{"config.yaml:3 enableNodeLease: ignored with a warning"},
		},
		"true needs no gate": {node: node{version: "1.38.0", main: config("enableNodeLease: true")}},
		"a drop-in turns it off": {
			node:     node{version: "1.38.0", main: config(), dropIns: map[string]string{"90.conf": both}},
			leaseOff: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.lint(t)
			if got := outcomes(r); !slices.Equal(got, c.want) {
				t.Errorf("findings\n%q, want\n%q", got, c.want)
			}
			if r.Starts == c.stops {
				t.Errorf("starts: %t", r.Starts)
			}
			if off := r.Starts && !r.Lease.Enabled; off != c.leaseOff {
				t.Errorf("lease off: %t, want %t\n%s", off, c.leaseOff, r)
			}
		})
	}
}

func TestVerdictsOn138SayThatTheyAreFromTheKEP(t *testing.T) {
	r := node{version: "1.38.0", main: config("enableNodeLease: false", "maxPod: 3")}.lint(t)
	basis := map[string]kubeletcfg.Basis{}
	for _, f := range r.Findings {
		basis[f.Path] = f.Basis
	}
	if basis["enableNodeLease"] != kubeletcfg.FromKEP || basis["maxPod"] != kubeletcfg.Inferred {
		t.Errorf("basis %v", basis)
	}
	if !strings.Contains(r.String(), string(kubeletcfg.FromKEP)) {
		t.Errorf("the report does not say it:\n%s", r)
	}
}

// B44: drop-ins without the right suffix.
func TestEveryFileThatIsNotReadIsReportedAndTheOrderIsTheWalk(t *testing.T) {
	r := node{version: "1.37.2", main: config("maxPods: 1"), dropIns: map[string]string{
		"90-lease.yaml": config("maxPods: 2"), "91-lease.conf.bak": config("maxPods: 3"),
		"sub/10-x.conf": config("maxPods: 4"), "10-A.conf": config("maxPods: 5"), "2-b.conf": config("maxPods: 6"),
	}}.lint(t)
	want := []string{"conf.d/90-lease.yaml : ignored silently", "conf.d/91-lease.conf.bak : ignored silently"}
	if got := outcomes(r); !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
	order := []string{"config.yaml", "conf.d/10-A.conf", "conf.d/2-b.conf", "conf.d/sub/10-x.conf"}
	if !slices.Equal(r.Read, order) {
		t.Errorf("read %q, want %q", r.Read, order)
	}
	if v := valueOf(t, r, "maxPods"); v.String() != "maxPods: 4  # conf.d/sub/10-x.conf:3, over config.yaml:3, conf.d/10-A.conf:3, conf.d/2-b.conf:3" {
		t.Errorf("%s", v)
	}
}

// B46: maps merge, null deletes, lists are replaced, flags win.
func TestGateAndFieldAreShownTogetherAfterMergeNullAndFlags(t *testing.T) {
	r := node{
		version: "1.38.0",
		main:    config("featureGates: {NodeLogQuery: true, ExternalNodeLivenessDetection: true}", "evictionHard: {memory.available: 1Gi}", "clusterDNS: [10.0.0.1, 10.0.0.2]", "enableNodeLease: false"),
		dropIns: map[string]string{
			"10.conf": config("featureGates: {ExternalNodeLivenessDetection: null}"),
			"20.conf": config("featureGates: {ContextualLogging: true}"),
			"30.conf": config("evictionHard: {nodefs.available: 8%}", "clusterDNS: [10.0.0.3]"),
		},
		flags: map[string]bool{"NodeLogQuery": false},
	}.lint(t)
	for path, want := range map[string]string{
		"featureGates.NodeLogQuery":      "featureGates.NodeLogQuery: false  # --feature-gates, over config.yaml:3",
		"featureGates.ContextualLogging": "featureGates.ContextualLogging: true  # conf.d/20.conf:3",
		"evictionHard[memory.available]": `evictionHard[memory.available]: "1Gi"  # config.yaml:4`,
		"evictionHard[nodefs.available]": `evictionHard[nodefs.available]: "8%"  # conf.d/30.conf:3`,
		"clusterDNS":                     `clusterDNS: ["10.0.0.3"]  # conf.d/30.conf:4, over config.yaml:5`,
	} {
		if got := valueOf(t, r, path).String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if r.Clean() || !r.Lease.Enabled || r.Lease.Gate {
		t.Errorf("a field whose gate was deleted passes:\n%s", r)
	}
	if line := r.Lease.String(); !strings.Contains(line, "enableNodeLease: true") || !strings.Contains(line, "ExternalNodeLivenessDetection: false") {
		t.Errorf("field and gate are not on one line: %s", line)
	}
}

func TestALeaseDurationOfZeroDoesNotTurnTheLeaseOff(t *testing.T) {
	r := node{version: "1.38.0", main: config("nodeLeaseDurationSeconds: 0")}.lint(t)
	if got, want := outcomes(r), []string{"config.yaml:3 nodeLeaseDurationSeconds: ignored silently"}; !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
	r = node{version: "1.38.0", main: config("nodeLeaseDurationSeconds: -1", "enableNodeLease: false", gateOn)}.lint(t)
	if r.Starts {
		t.Errorf("a negative duration passes with leases off:\n%s", r)
	}
}

func TestAZeroThatMeansTheDefaultIsToldAndNotTakenForTheValue(t *testing.T) {
	for line, want := range map[string]string{
		"maxPods: 0":                                "maxPods: 0 means the default, 110",
		"port: 0":                                   "port: 0 means the default, 10250",
		"syncFrequency: 0s":                         "syncFrequency: 0s means the default, 1m0s",
		"nodeStatusUpdateFrequency: 0s":             "nodeStatusUpdateFrequency: 0s means the default, 10s",
		"nodeStatusReportFrequency: 0m":             "nodeStatusReportFrequency: 0m means the default, ",
		"authentication: {webhook: {cacheTTL: 0s}}": "authentication.webhook.cacheTTL: 0s means the default, 2m0s",
		`hairpinMode: ""`:                           `hairpinMode: "" means the default, promiscuous-bridge`,
		"logging: {flushFrequency: 0}":              "logging.flushFrequency: 0 means the default, 5s",
		"nodeLeaseDurationSeconds: 0":               "nodeLeaseDurationSeconds: 0 means the default, 40; it does not turn the Lease off",
		"readOnlyPort: 0":                           "",
		"eventRecordQPS: 0":                         "",
		"imageMaximumGCAge: 0s":                     "",
		"maxPods: 5":                                "",
	} {
		for name, n := range map[string]node{
			"config.yaml":    {version: "1.37.2", main: config(line)},
			"conf.d/10.conf": {version: "1.37.2", main: config("maxPods: 9", "nodeLeaseDurationSeconds: 60", "logging: {flushFrequency: 9s}"), dropIns: map[string]string{"10.conf": config(line)}},
		} {
			r := n.lint(t)
			if want == "" && !r.Clean() || want != "" && (len(r.Findings) != 1 || !strings.HasPrefix(r.Findings[0].String(), name+":3: ignored silently: "+want)) {
				t.Errorf("%s in %s: findings %v, want %q", line, name, r.Findings, want)
			}
			for _, v := range r.Values {
				if want != "" && v.From.File == name {
					t.Errorf("%s in %s is listed as if the file said so: %s", line, name, v)
				}
			}
		}
	}
}

func TestAZeroThatALaterFileReplacesIsNoneAnyMore(t *testing.T) {
	r := node{version: "1.37.2", main: config("maxPods: 0", "logging: {flushFrequency: 0}"), dropIns: map[string]string{"10.conf": config("maxPods: 5", "logging: null")}}.lint(t)
	if !r.Clean() || valueOf(t, r, "maxPods").From.File != "conf.d/10.conf" {
		t.Errorf("%s", r)
	}
}

// kubeadm writes all durations as 0s. Nobody meant anything by them.
func TestTheZerosThatAProgramWritesUnaskedAreTheDefaultWithoutAWord(t *testing.T) {
	data, err := json.Marshal(v1beta1.KubeletConfiguration{})
	if err != nil {
		t.Fatal(err)
	}
	var written map[string]any
	if err := json.Unmarshal(data, &written); err != nil {
		t.Fatal(err)
	}
	written["apiVersion"], written["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	lint := func() kubeletcfg.Report {
		data, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		return node{version: "1.37.2", main: string(data)}.lint(t)
	}
	if r := lint(); !r.Clean() || valueOf(t, r, "syncFrequency").From.File != "" {
		t.Errorf("%s", r)
	}
	written["nodeLeaseDurationSeconds"] = 0
	if got := outcomes(lint()); len(got) != 1 || !strings.Contains(got[0], "nodeLeaseDurationSeconds") {
		t.Errorf("a zero beside them that somebody asked for: %q", got)
	}
}

func TestAnOlderKubeletDoesNotKnowYoungerFieldsAndGates(t *testing.T) {
	r := node{version: "1.32.4", main: config("userNamespaces: {idsPerPod: 1}", "featureGates: {DRAConsumableCapacity: true}")}.lint(t)
	want := []string{
		"config.yaml:4 featureGates.DRAConsumableCapacity: would not start",
		"config.yaml:3 userNamespaces: ignored with a warning",
	}
	if got := outcomes(r); !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
}

func TestWhatIsLostWithoutAWordIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		main, dropIn string
		want         []string
	}{
		"a second document": {config("maxPods: 1", "---", "maxPods: 2"), config("maxPods: 3", "---", "maxPods: 4"), []string{
			"conf.d/10.conf:4 : ignored silently", "config.yaml:4 : ignored silently",
		}},
		"a drop-in field that loses by its spelling": {config("maxPods: 1"), config("MaxPods: 2"), []string{
			"conf.d/10.conf:3 MaxPods: ignored silently",
		}},
		"a drop-in field that wins by its spelling": {config("maxPods: 1"), config("maxpods: 2"), []string{
			"conf.d/10.conf:3 maxpods: applied",
		}},
		"a drop-in field that nobody else sets": {config(), config("MaxOpenfiles: 2", "ClusterDomain: x"), []string{
			"conf.d/10.conf:3 MaxOpenfiles: ignored silently", "conf.d/10.conf:4 ClusterDomain: applied",
		}},
		"a split stream, which a flag overwrites": {config("logging: {options: {text: {splitStream: true}}}", "featureGates: {LoggingAlphaOptions: true}"), config(), []string{
			"config.yaml:3 logging.options.text.splitStream: ignored silently",
		}},
		"a field in the wrong case in the main file": {config("MaxPods: 1"), config(), []string{
			"config.yaml:3 MaxPods: ignored with a warning",
		}},
		"a key that is there twice in the main file": {config("maxPods: 1", "maxPods: 2"), config(), []string{
			"config.yaml:3 maxPods: ignored with a warning",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := node{version: "1.37.2", main: c.main, dropIns: map[string]string{"10.conf": c.dropIn}}.lint(t)
			if got := outcomes(r); !slices.Equal(got, c.want) {
				t.Errorf("findings\n%q, want\n%q\n%s", got, c.want, r)
			}
		})
	}
}

func TestAGateThatADropInTakesBackHasStoppedTheKubeletAlready(t *testing.T) {
	r := node{
		version: "1.37.2", main: config("featureGates: {NoSuchGate: true}"),
		dropIns: map[string]string{"10.conf": config("featureGates: {NoSuchGate: null}")},
	}.lint(t)
	if r.Starts {
		t.Errorf("it starts:\n%s", r)
	}
}

func TestEverythingWrongIsReportedAtOnce(t *testing.T) {
	r := node{version: "1.37.2", main: config("maxPods: many", "syncFrequency: soon", "featureGates: {NodeSwap: 1}", "nope: 1")}.lint(t)
	want := []string{
		"config.yaml:3 maxPods: would not start",
		"config.yaml:4 syncFrequency: would not start",
		"config.yaml:5 featureGates.NodeSwap: would not start",
	}
	if got := outcomes(r); !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q", got, want)
	}
}

func valueOf(t *testing.T, r kubeletcfg.Report, path string) kubeletcfg.Value {
	t.Helper()
	for _, v := range r.Values {
		if v.Path == path {
			return v
		}
	}
	t.Fatalf("no value %s in\n%s", path, r)
	return kubeletcfg.Value{}
}

func FuzzLintAnswersWhateverItIsGiven(f *testing.F) {
	f.Add([]byte(config("maxPods: 3")), []byte(config("featureGates: {A: null}")), true)
	f.Add([]byte("a: &a [*a]"), []byte("<<: {}"), false)
	f.Add([]byte("{\"apiVersion\": 1}"), []byte{}, true)
	f.Fuzz(func(t *testing.T, main, dropIn []byte, young bool) {
		version := "1.37.2"
		if young {
			version = "1.38.0"
		}
		r := node{version: version, main: string(main), dropIns: map[string]string{"10.conf": string(dropIn)}}.lint(t)
		if r.Starts && r.Config == nil {
			t.Errorf("starts without a configuration:\n%s", r)
		}
		_ = r.String()
	})
}
