package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodewarden/nodewarden/contract"
)

const head = "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\n"

func TestAnEmptyFileOfTheRightKindIsTheWarnProfile(t *testing.T) {
	c, err := Parse([]byte(head))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Policy(), contract.Default(contract.WarnOnly); !reflect.DeepEqual(got, want) {
		t.Errorf("policy of an empty file:\n got %+v\nwant %+v", got, want)
	}
	if c.Stalled.StatusReportPeriod.Duration != 5*time.Minute || *c.Stalled.AfterPeriods != 3 || *c.Stalled.MaxNamedNodes != 100 {
		t.Errorf("stalled: %+v", c.Stalled)
	}
}

func TestEveryFieldReachesThePolicy(t *testing.T) {
	c, err := Parse([]byte(head + `
profile: enforce
rules: {SignalTooYoung: warn, UnauthorizedDetector: deny}
recoveryHold: 0s
signalPersistence: 30s
maxClockSkew: 2m
livenessSource: external
standIns:
- serviceAccount: {namespace: kwok, name: kwok-controller}
- {user: system:node, group: system:nodes}
lifecycle: [{user: kcm}]
controller: {serviceAccount: {namespace: infra, name: warden}}
detectors:
- serviceAccount: {namespace: liveness, name: detector}
  nodeSelector: {matchLabels: {pool: a}}
- user: probe
stalled: {statusReportPeriod: 1m, afterPeriods: 5, maxNamedNodes: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Policy()
	want := contract.Policy{
		Profile:           contract.Enforce,
		Rules:             map[contract.Rule]contract.Action{contract.SignalTooYoung: contract.Warn, contract.UnauthorizedDetector: contract.Deny},
		SignalPersistence: 30 * time.Second, MaxClockSkew: 2 * time.Minute,
		StandIns:   []contract.Identity{contract.ServiceAccount("kwok", "kwok-controller"), {User: "system:node", Group: "system:nodes"}},
		Lifecycle:  []contract.Identity{{User: "kcm"}},
		Controller: contract.ServiceAccount("infra", "warden"),
		Detectors:  []contract.Detector{{Identity: contract.ServiceAccount("liveness", "detector"), Nodes: p.Detectors[0].Nodes}, {Identity: contract.Identity{User: "probe"}}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("\n got %+v\nwant %+v", p, want)
	}
	if s := p.Detectors[0].Nodes; !s.Matches(labels.Set{"pool": "a"}) || s.Matches(labels.Set{"pool": "b"}) {
		t.Errorf("selector %v does not select pool=a alone", s)
	}
	if c.LivenessSource != FromExternal || *c.Stalled.MaxNamedNodes != 0 {
		t.Errorf("livenessSource %q, stalled %+v", c.LivenessSource, c.Stalled)
	}
}

func TestPrintedConfigurationReadsBackAsItself(t *testing.T) {
	text, err := Default().YAML()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !reflect.DeepEqual(back, Default()) {
		t.Errorf("printed and read back:\n%s", text)
	}
}

func TestABareOffIsOff(t *testing.T) {
	c, err := Parse([]byte(head + "rules: {ReasonUnclear: deny, LabelsChanged: off, ClockSkew: \"off\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Policy()
	for rule, want := range map[contract.Rule]contract.Action{contract.ReasonUnclear: contract.Deny, contract.LabelsChanged: contract.Off, contract.ClockSkew: contract.Off} {
		if got := p.Action(rule); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

func TestEveryProblemIsToldAtItsOwnPath(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"several at once": {head + `
profile: strict
recoveryHold: soon
maxClockSkew: 1500ms
rules: {ReservedReasons: deny, ReservedReason: refuse}
standIns: [{}, {user: "system:serviceaccount:a:b"}, {user: "system:node:n1"}]
livenessSource: lease
stalled: {afterPeriods: 0}
`, []string{
			`profile: Unsupported value: "strict"`, `recoveryHold: Invalid value: "soon": is not a duration`,
			`maxClockSkew: Invalid value: "1.5s": must be whole seconds`, `rules: Unsupported value: "ReservedReasons"`,
			`rules[ReservedReason]: Unsupported value: "refuse"`, `standIns[0]: Required value: names nobody`,
			`standIns[1].user: Invalid value: "system:serviceaccount:a:b": is a service account`, `standIns[2].user: Invalid value: "system:node:n1"`,
			`livenessSource: Unsupported value: "lease"`, `stalled.afterPeriods: Invalid value: 0`,
		}},
		"an action that is no text":                {head + "rules: {ReservedReason: 3, ReasonMissing: true, Foo: deny}\n", []string{`rules[ReservedReason]: Unsupported value: "3"`, `rules[ReasonMissing]: Unsupported value: "true"`, `rules: Unsupported value: "Foo"`}},
		"nobody who tends nodes":                   {head + "lifecycle: []\n", []string{"lifecycle: Required value: an empty list has kube-controller-manager judged"}},
		"rules that are a list":                    {head + "rules: [ReservedReason]\n", []string{"rules: want rules with their actions"}},
		"unknown fields beside others":             {head + "profiles: enforce\nrecoveryHold: -1s\n", []string{`unknown field "profiles"`, `recoveryHold: Invalid value: "-1s"`}},
		"a field given twice":                      {head + "profile: warn\nprofile: audit\n", []string{`key "profile" already set`}},
		"a number where a duration belongs":        {head + "recoveryHold: 10\n", []string{`recoveryHold: Invalid value: "10": is not a duration`}},
		"a number where a word belongs":            {head + "profile: 3\n", []string{`profile: is a number; want text, in quotes`}},
		"a word where identities belong":           {head + "standIns: kwok\n", []string{`standIns: is text; want a list`}},
		"a number deep inside":                     {head + "standIns: [{user: 5}]\n", []string{`standIns.user: is a number; want text, in quotes`}},
		"a number inside an embedded type":         {head + "detectors: [{serviceAccount: {namespace: 5, name: x}}]\n", []string{`detectors.serviceAccount.namespace: is a number; want text`}},
		"a label that is a number":                 {head + "detectors: [{user: a, nodeSelector: {matchLabels: {\"\": 5}}}]\n", []string{`matchLabels`, `is a number; want text`}},
		"half a period":                            {head + "stalled: {afterPeriods: 1.5}\n", []string{`stalled.afterPeriods: is a number 1.5; want a whole number`}},
		"a number in quotes":                       {head + "stalled: {afterPeriods: '3'}\n", []string{`stalled.afterPeriods: is text; want a whole number`}},
		"a number where an identity belongs":       {head + "controller: 5\n", []string{`controller: is a number; want fields`}},
		"a list where a word belongs":              {head + "livenessSource: [external]\n", []string{`livenessSource: is a list; want text`}},
		"a number for an operator":                 {head + "detectors: [{nodeSelector: {matchExpressions: [{operator: 5}]}}]\n", []string{`operator: is a number; want text`}},
		"fields where a list belongs":              {head + "standIns: {user: kwok}\n", []string{`standIns: is fields; want a list`}},
		"another kind":                             {"apiVersion: v1\nkind: ConfigMap\n", []string{`apiVersion: Unsupported value: "v1"`, `kind: Unsupported value: "ConfigMap"`}},
		"nothing at all":                           {"# nothing\n", []string{"is empty; begin with apiVersion"}},
		"two documents":                            {head + "---\n" + head, []string{"more than one YAML document"}},
		"not YAML":                                 {"{", []string{"yaml"}},
		"a list":                                   {"- a\n", []string{"is a list; want fields, such as apiVersion"}},
		"a word":                                   {"hello\n", []string{"is text; want fields"}},
		"detectors that no rule reads":             {head + "detectors: [{user: probe}]\n", []string{"rules[UnauthorizedDetector]: Required value"}},
		"a detector that is a stand-in":            {head + "rules: {UnauthorizedDetector: deny}\nstandIns: [{serviceAccount: {namespace: a, name: b}}]\ndetectors: [{user: probe}, {serviceAccount: {namespace: a, name: b}}]\n", []string{`detectors[1]: Invalid value: "system:serviceaccount:a:b": is listed under standIns as well`}},
		"a detector that is a lifecycle identity":  {head + "rules: {UnauthorizedDetector: deny}\ndetectors: [{user: \"system:kube-controller-manager\"}]\n", []string{`detectors[0]: Invalid value: "system:kube-controller-manager": is listed under lifecycle as well`}},
		"a detector that is spared in every group": {head + "rules: {UnauthorizedDetector: deny}\nstandIns: [{user: a}]\ndetectors: [{user: a, group: b}]\n", []string{`detectors[0]: Invalid value: "a": is listed under standIns`}},
		"a profile and a source that are empty":    {head + "profile: \"\"\nlivenessSource: \"\"\n", []string{`profile: Unsupported value: ""`, `livenessSource: Unsupported value: ""`}},
		"a rule on detectors without any":          {head + "rules: {UnauthorizedDetector: deny}\n", []string{"detectors: Required value"}},
		"a hold that is empty":                     {head + "recoveryHold: \"\"\n", []string{`recoveryHold: Invalid value: "": is not a duration`}},
		"a second document after three dots":       {head + "profile: audit\n...\n" + head + "profile: enforce\n", []string{"more than one YAML document"}},
		"two JSON objects":                         {`{"apiVersion":"config.nodewarden.dev/v1alpha1","kind":"WebhookConfiguration"} {"profile":"enforce"}`, []string{"more than one YAML document"}},
		"a measure without the rule that reads it": {head + "signalPersistence: 30s\n", []string{"rules[SignalTooYoung]: Required value: signalPersistence is set"}},
		"a persistence rule without a measure":     {head + "rules: {SignalTooYoung: deny}\n", []string{"signalPersistence: Required value"}},
		"a selector that is none":                  {head + "rules: {UnauthorizedDetector: deny}\ndetectors: [{user: probe, nodeSelector: {matchExpressions: [{key: a, operator: Near}]}}]\n", []string{"detectors[0].nodeSelector.matchExpressions[0].operator"}},
		"a service account and a user":             {head + "controller: {user: a, serviceAccount: {namespace: b, name: c}}\n", []string{"controller: Forbidden"}},
		"a service account without a name":         {head + "controller: {serviceAccount: {namespace: B}}\n", []string{"controller.serviceAccount.namespace", "controller.serviceAccount.name"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("missing %q in:\n%v", want, err)
				}
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(head+"profile: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".missing"} {
		if _, err := Load(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("Load(%q): %v", p, err)
		}
	}
	if c, err := Load(""); err != nil || c.Profile != contract.WarnOnly {
		t.Errorf("no file: %+v, %v", c, err)
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(head + "stalled: null\nlifecycle: null\ndetectors: [null]\nstandIns: [null]\ncontroller: null\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := Parse(text); err == nil {
			c.Policy()
		}
	})
}
