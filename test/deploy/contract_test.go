package deploy

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/webhook/config"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// The chart's templates fill holes in text that the renderer wrote; whatever
// the values, what comes out must be what the renderer makes of them.
func TestTheChartRendersWhatTheRendererRenders(t *testing.T) {
	for name, v := range policyValues(24) {
		t.Run(name, func(t *testing.T) {
			installs := policy.Installs()
			if strings.HasPrefix(name, byChance) {
				installs = installs[:1] // the one that renders everything
			}
			for _, install := range installs {
				all := render(t, values{"install": string(install)}.at("policy", v).at("certificates.mode", "cert-manager"))
				p := meant(t, v)
				if install != policy.WebhookAlone {
					comparePolicies(t, all, p)
				} else if n := len(all.ofKind("ValidatingAdmissionPolicy")) + len(all.ofKind("ValidatingAdmissionPolicyBinding")); n > 0 {
					t.Errorf("%s: %d policies and bindings", install, n)
				}
				compareWebhooks(t, all, p, install)
				comparePolicyFile(t, all, v, install)
			}
		})
	}
}

// A pod whose policy file has changed is replaced, and quotes are no change.
func TestOffIsTheSameWithAndWithoutQuotes(t *testing.T) {
	all := policyValues(0)
	with := render(t, values{}.at("policy", all["everything off"]))
	without := render(t, values{}.at("policy", all["everything off, without quotes"]))
	compare(t, without, with)
}

// meant is the policy that values describe: they have the policy file's form.
func meant(t *testing.T, v map[string]any) contract.Policy {
	t.Helper()
	return read(t, v).Policy()
}

func read(t *testing.T, v map[string]any) *config.WebhookConfiguration {
	t.Helper()
	file := map[string]any{
		"apiVersion": config.APIVersion, "kind": config.Kind,
		"controller": map[string]any{"serviceAccount": map[string]any{"namespace": namespace, "name": "nodewarden-controller"}},
	}
	for key, value := range v {
		file[key] = value
	}
	text, err := sigsyaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(text)
	if err != nil {
		t.Fatalf("the test's own values are wrong: %v\n%s", err, text)
	}
	return c
}

func comparePolicies(t *testing.T, all objects, p contract.Policy) {
	t.Helper()
	set, err := policy.Policies(p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := objects{}
	for _, g := range set.Guards {
		want.add(t, g.Policy)
		for _, b := range g.Bindings {
			want.add(t, b)
		}
	}
	got := objects{}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		for _, o := range all.ofKind(kind) {
			got[key(o.GetKind(), "", o.GetName())] = o
		}
	}
	compare(t, got, want)
}

func compareWebhooks(t *testing.T, all objects, p contract.Policy, install policy.Install) {
	t.Helper()
	got, want := all.ofKind("ValidatingWebhookConfiguration"), objects{}
	if install != policy.PolicyAlone {
		c, err := policy.Webhooks(p, policy.WebhookOptions{Install: install, Service: &policy.ServiceReference{Namespace: namespace, Name: "nodewarden-webhook"}})
		if err != nil {
			t.Fatal(err)
		}
		want[c.Name] = plain(t, c)
	}
	compare(t, got, want)
}

func comparePolicyFile(t *testing.T, all objects, v map[string]any, install policy.Install) {
	t.Helper()
	o := all[key("ConfigMap", namespace, "nodewarden-policy")]
	if install == policy.PolicyAlone {
		if o != nil {
			t.Error("a policy file without a server to read it")
		}
		return
	}
	got, err := config.Parse([]byte(o.Object["data"].(map[string]any)["policy.yaml"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := printed(t, got), printed(t, read(t, v)); got != want {
		t.Errorf("the server would read\n%s\nand not\n%s", got, want)
	}
}

func printed(t *testing.T, c *config.WebhookConfiguration) string {
	t.Helper()
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (o objects) add(t *testing.T, object runtime.Object) {
	t.Helper()
	u := plain(t, object)
	o[key(u.GetKind(), "", u.GetName())] = u
}

// compare wants the same objects, apart from labels and annotations that the
// installer adds.
func compare(t *testing.T, got, want objects) {
	t.Helper()
	for k, w := range want {
		g := got[k]
		if g == nil {
			t.Errorf("%s is missing", k)
			continue
		}
		for of, has := range map[string][2]map[string]string{
			"label": {g.GetLabels(), w.GetLabels()}, "annotation": {g.GetAnnotations(), w.GetAnnotations()},
		} {
			for name, value := range has[1] {
				if has[0][name] != value {
					t.Errorf("%s: %s %s is %q, want %q", k, of, name, has[0][name], value)
				}
			}
		}
		if difference := differ(body(g.Object), body(w.Object), k); difference != "" {
			t.Error(difference)
		}
	}
	for k := range got {
		if want[k] == nil {
			t.Errorf("%s is too much", k)
		}
	}
}

// body is an object without its metadata and its state.
func body(o map[string]any) map[string]any {
	rest := map[string]any{}
	for key, value := range o {
		if key != "metadata" && key != "status" {
			rest[key] = value
		}
	}
	return rest
}

// differ names the first place where two trees differ.
func differ(got, want any, at string) string {
	g, isMap := got.(map[string]any)
	w, bothMaps := want.(map[string]any)
	if isMap && bothMaps {
		for _, name := range slices.Sorted(keysOf(g, w)) {
			if d := differ(g[name], w[name], at+"."+name); d != "" {
				return d
			}
		}
		return ""
	}
	gs, isList := got.([]any)
	ws, bothLists := want.([]any)
	if isList && bothLists && len(gs) == len(ws) {
		for i := range gs {
			if d := differ(gs[i], ws[i], fmt.Sprintf("%s[%d]", at, i)); d != "" {
				return d
			}
		}
		return ""
	}
	if reflect.DeepEqual(got, want) {
		return ""
	}
	return fmt.Sprintf("%s is\n%v\nand not\n%v", at, got, want)
}

func keysOf(maps ...map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for _, m := range maps {
			for key := range m {
				if !seen[key] && !yield(key) {
					return
				}
				seen[key] = true
			}
		}
	}
}

// byChance begins the names of policies that nobody chose.
const byChance = "by chance"

// policyValues are policies worth rendering, and n that chance made.
func policyValues(n int) map[string]map[string]any {
	all := map[string]map[string]any{
		"untouched": {}, "enforce": {"profile": "enforce"}, "audit": {"profile": "audit"},
		"no holds":                                      {"profile": "enforce", "recoveryHold": "0s"},
		"a lifecycle controller of another name":        {"lifecycle": []any{map[string]any{"user": "kcm"}}},
		"a backslash in a name":                         {"standIns": []any{map[string]any{"user": `CORP\kubelets "all"`, "group": "a b"}}},
		"holds in other units":                          {"profile": "enforce", "recoveryHold": "1h1m30s", "maxClockSkew": "90m", "signalPersistence": "45s", "rules": map[string]any{"SignalTooYoung": "deny"}},
		"names that read like CEL":                      {"profile": "enforce", "detectors": []any{map[string]any{"user": `facts.ready "facts.is`, "nodeSelector": map[string]any{"matchLabels": map[string]any{"facts.was/pool": "facts.now"}}}}, "standIns": []any{map[string]any{"user": "facts.stamp"}}, "rules": map[string]any{"UnauthorizedDetector": "deny"}},
		"more detectors than an audit annotation holds": {"profile": "enforce", "detectors": []any{}, "rules": map[string]any{"UnauthorizedDetector": "deny"}},
		"listed detectors, not enforced":                {"detectors": []any{map[string]any{"user": "probe"}}, "rules": map[string]any{"UnauthorizedDetector": "off"}},
	}
	for i := range 30 {
		many := all["more detectors than an audit annotation holds"]
		many["detectors"] = append(many["detectors"].([]any), map[string]any{
			"user": fmt.Sprint("detector-of-pool-", i), "nodeSelector": map[string]any{"matchLabels": map[string]any{"node-restriction.kubernetes.io/pool": fmt.Sprint("pool-", i)}},
		})
	}
	everything, bare := map[string]any{}, map[string]any{}
	for _, r := range contract.Rules() {
		everything[string(r)] = "off"
		bare[string(r)] = false // what YAML makes of off without quotes
	}
	all["everything off"] = map[string]any{"rules": everything}
	all["everything off, without quotes"] = map[string]any{"rules": bare}
	chance := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		all[fmt.Sprintf(byChance+" %d", i)] = chosen(chance)
	}
	return all
}

func chosen(chance *rand.Rand) map[string]any {
	pick := func(from ...string) string { return from[chance.IntN(len(from))] }
	v := map[string]any{
		"profile":           pick("enforce", "warn", "audit"),
		"recoveryHold":      pick("0s", "10s", "1m", "2m5s"),
		"signalPersistence": pick("1s", "30s", "1h"),
		"maxClockSkew":      pick("1s", "60s", "24h"),
	}
	rules := map[string]any{}
	for _, r := range contract.Rules() {
		if r != contract.UnauthorizedDetector && chance.IntN(3) == 0 {
			rules[string(r)] = pick("deny", "warn", "audit", "off")
		}
	}
	if rules[string(contract.SignalTooYoung)] == nil {
		delete(v, "signalPersistence") // of no use to any other rule
	}
	if chance.IntN(2) == 0 {
		rules[string(contract.UnauthorizedDetector)] = pick("deny", "warn", "audit")
		v["detectors"] = several(1+chance.IntN(3), func() any { return detector(chance) })
	}
	v["rules"] = rules
	v["standIns"] = several(chance.IntN(3), func() any { return identity(chance) })
	if chance.IntN(2) == 0 {
		v["lifecycle"] = several(1+chance.IntN(2), func() any { return identity(chance) })
	}
	return v
}

func several(n int, one func() any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = one()
	}
	return all
}

func identity(chance *rand.Rand) map[string]any {
	name := fmt.Sprintf("n%d", chance.IntN(100))
	switch chance.IntN(3) {
	case 0:
		return map[string]any{"user": "user:" + name}
	case 1:
		return map[string]any{"user": "user:" + name, "group": "group " + name}
	default:
		return map[string]any{"serviceAccount": map[string]any{"namespace": "ns-" + name, "name": name}}
	}
}

func detector(chance *rand.Rand) map[string]any {
	d := identity(chance)
	if chance.IntN(3) == 0 {
		return d
	}
	selector := map[string]any{}
	if chance.IntN(2) == 0 {
		selector["matchLabels"] = map[string]any{"pool": "a", "example.com/zone": "z"}
	}
	operators := []string{"In", "NotIn", "Exists", "DoesNotExist"}
	selector["matchExpressions"] = several(chance.IntN(3), func() any {
		operator := operators[chance.IntN(len(operators))]
		e := map[string]any{"key": fmt.Sprintf("k%d", chance.IntN(1000)), "operator": operator}
		if strings.HasSuffix(operator, "In") {
			e["values"] = []any{"v2", "v1", "v2"}
		}
		return e
	})
	d["nodeSelector"] = selector
	return d
}

// A value that the chart cannot render, or the servers would refuse, is
// refused by name and with a way out, all of them at once.
func TestValuesThatCannotWorkAreRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		want   []string
	}{
		"a profile that is none":      {values{}.at("policy.profile", "strict"), []string{"/policy/profile", "enforce"}},
		"a rule that is none":         {values{}.at("policy.rules.ReservedReasons", "deny"), []string{"ReservedReasons"}},
		"a value that is none":        {values{}.at("webhook.replica", 3), []string{"replica"}},
		"a name beyond ASCII":         {values{}.at("policy.standIns", []any{map[string]any{"user": "ä"}}), []string{"/policy/standIns/0/user"}},
		"nobody who tends nodes":      {values{}.at("policy.lifecycle", []any{}), []string{"policy.lifecycle: an empty list has kube-controller-manager judged"}},
		"a number that needs a quote": {values{}.at("policy.recoveryHold", 10), []string{"/policy/recoveryHold"}},
		"several at once": {values{}.at("policy.recoveryHold", "25h").at("policy.maxClockSkew", "0s").
			at("policy.detectors", []any{map[string]any{"user": "a"}}).at("policy.standIns", []any{map[string]any{}, map[string]any{"user": "system:node:n1"}}),
			[]string{"policy.recoveryHold", "policy.maxClockSkew", "policy.rules.UnauthorizedDetector", "policy.standIns[0] names nobody", "policy.standIns[1].user"}},
		"a measure of silence without a rule": {values{}.at("policy.signalPersistence", "30s"), []string{"policy.rules.SignalTooYoung", "signalPersistence is set"}},
		"a rule on silence without a measure": {values{}.at("policy.rules.SignalTooYoung", "deny"), []string{"policy.signalPersistence", "30s"}},
		"a rule on detectors without any":     {values{}.at("policy.rules.UnauthorizedDetector", "deny"), []string{"policy.detectors"}},
		"a certificate without its authority": {values{}.at("certificates.mode", "provided"), []string{"certificates.caBundle"}},
		"a server elsewhere, unverified":      {values{}.at("webhook.url", "https://127.0.0.1:9443/validate"), []string{"certificates.caBundle"}},
		"more detectors than an expression holds": {values{}.at("policy.rules.UnauthorizedDetector", "deny").at("policy.detectors", several(800, func() any {
			return map[string]any{"serviceAccount": map[string]any{"namespace": "liveness-of-a-pool", "name": "detector"}}
		})),
			[]string{"an API server takes 100000", "list fewer standIns, lifecycle identities or detectors"}},
		"more stand-ins than a webhook's expression holds": {values{}.at("install", "webhook-alone").at("policy.standIns", several(1500, func() any {
			return map[string]any{"serviceAccount": map[string]any{"namespace": "virtual-kubelets", "name": "stand-in"}}
		})),
			[]string{"an API server takes 100000"}},
		"a label named twice": {values{}.at("policy.rules.UnauthorizedDetector", "deny").at("policy.detectors", []any{map[string]any{"user": "a", "nodeSelector": map[string]any{
			"matchLabels": map[string]any{"pool": "a"}, "matchExpressions": []any{map[string]any{"key": "pool", "operator": "Exists"}},
		}}}), []string{"policy.detectors", "nodewarden policy render"}},
		"a private key where everybody reads": {values{}.at("certificates.caBundle", pemOf("CERTIFICATE")+pemOf("EC PRIVATE KEY")), []string{"certificates.caBundle: holds a private key"}},
		"a bundle of something else":          {values{}.at("certificates.caBundle", pemOf("CERTIFICATE")+pemOf("CERTIFICATE REQUEST")), []string{`certificates.caBundle: holds a block "CERTIFICATE REQUEST"`}},
		"a bundle that is none":               {values{}.at("certificates.caBundle", "MIIBgzCCASmgAwIBAgIU"), []string{"certificates.caBundle: holds no certificate", "-----BEGIN CERTIFICATE-----"}},
		"one port for two":                    {values{}.at("webhook.port", 8080), []string{"webhook.metricsPort: 8080 is webhook.port as well"}},
		"ports that take root": {values{}.at("webhook.port", 443).at("webhook.metricsPort", 80).at("controller.metricsPort", 81),
			[]string{"/webhook/port", "/webhook/metricsPort", "/controller/metricsPort", "want 1,024"}},
		"a controller beside with nothing to do": {values{}.at("controller.mode", "beside").at("controller.livenessSource", "kubelet"), []string{"controller.livenessSource", "externalNodes"}},
		"some nodes and all of them": {values{}.at("controller.mode", "replace").at("controller.livenessSource", "external").at("controller.externalNodes", "pool=a"),
			[]string{"controller.externalNodes: livenessSource external leaves none to select from"}},
		"a source for a controller that is off": {values{}.at("controller.livenessSource", "external").at("controller.externalNodes", "pool=a"),
			[]string{"controller.livenessSource: controller.mode is off", "controller.externalNodes: controller.mode is off"}},
		"nodes that no selector selects": {values{}.at("controller.mode", "beside").at("controller.externalNodes", "pool in a"), []string{"/controller/externalNodes"}},
		"no grace for kubelets":          {values{}.at("controller.mode", "replace").at("controller.nodeMonitorGracePeriod", "0s"), []string{"controller.nodeMonitorGracePeriod"}},
		"certificates for a moment":      {values{}.at("certificates.duration", "59m"), []string{`certificates.duration: "59m" must be between 1h and 87600h`}},
		"certificates for ever":          {values{}.at("certificates.duration", "87601h"), []string{"certificates.duration"}},
		"certificates renewed before they are made": {values{}.at("certificates.mode", "cert-manager").at("certificates.duration", "720h"),
			[]string{`certificates.renewBefore: "720h" must be at least 5m and shorter than certificates.duration`}},
		"a Secret without a name":    {values{}.at("certificates.secretName", ""), []string{"/certificates/secretName"}},
		"a webhook with a query":     {elsewhere("https://127.0.0.1:9443/validate?a=b"), []string{"webhook.url", "https://127.0.0.1:9443/validate"}},
		"a webhook with a fragment":  {elsewhere("https://127.0.0.1:9443/validate#a"), []string{"webhook.url"}},
		"a webhook with a user":      {elsewhere("https://me@127.0.0.1:9443/validate"), []string{"webhook.url"}},
		"a webhook without a path":   {elsewhere("https://127.0.0.1:9443"), []string{"webhook.url"}},
		"a webhook at no port":       {elsewhere("https://127.0.0.1:65536/validate"), []string{"webhook.url"}},
		"a webhook at a port's name": {elsewhere("https://127.0.0.1:https/validate"), []string{"webhook.url"}},
		"labels and annotations that are the chart's own": {values{}.at("commonLabels", map[string]any{"app.kubernetes.io/name": "mine", "helm.sh/chart": "mine"}).
			at("webhook.podLabels", map[string]any{"app.kubernetes.io/component": "mine"}).at("controller.podLabels", map[string]any{"app.kubernetes.io/version": "mine"}).
			at("monitoring.labels", map[string]any{"app.kubernetes.io/managed-by": "mine"}).at("pods.nodeSelector", map[string]any{"kubernetes.io/os": "windows"}).
			at("webhook.podAnnotations", map[string]any{"nodewarden.dev/policy": "mine"}).at("commonAnnotations", map[string]any{"nodewarden.dev/policy": "mine"}),
			[]string{"commonLabels: app.kubernetes.io/name", "commonLabels: helm.sh/chart", "webhook.podLabels: app.kubernetes.io/component", "controller.podLabels: app.kubernetes.io/version",
				"monitoring.labels: app.kubernetes.io/managed-by", "pods.nodeSelector: kubernetes.io/os", "webhook.podAnnotations: nodewarden.dev/policy", "commonAnnotations: nodewarden.dev/policy"}},
		"labels that none may be": {values{}.at("commonLabels", map[string]any{"team": "a b", "-team": "a"}), []string{"/commonLabels", "/commonLabels/team"}},
		"egress to nowhere":       {values{}.at("networkPolicy.apiServerPorts", []any{}), []string{"/networkPolicy/apiServerPorts"}},
		"images from nowhere":     {values{}.at("image.registry", "").at("image.tag", "v1 latest"), []string{"/image/registry", "/image/tag"}},
		"images from a URL":       {values{}.at("image.registry", "https://registry.example.com/nodewarden"), []string{"/image/registry"}},
		"detectors that nobody judges": {values{}.at("policy.rules.UnauthorizedDetector", "deny").at("policy.standIns", []any{map[string]any{"user": "a"}}).at("policy.detectors", []any{
			map[string]any{"user": "a"},
			map[string]any{"user": "a", "group": "b"}, // whatever its group
			map[string]any{"serviceAccount": map[string]any{"namespace": "kube-system", "name": "node-controller"}},
			map[string]any{"serviceAccount": map[string]any{"namespace": namespace, "name": "nodewarden-controller"}},
			map[string]any{"user": "b"},
		}), []string{
			"policy.detectors[0]: is listed under policy.standIns as well", "policy.detectors[1]: is listed under policy.standIns as well",
			"policy.detectors[2]: is listed under policy.lifecycle as well", "policy.detectors[3]: is nodewarden's own controller",
		}},
		"an account that none may be": {values{}.at("policy.standIns", []any{map[string]any{"serviceAccount": map[string]any{"namespace": "kube-system", "name": "Kwok"}}}),
			[]string{"/policy/standIns/0/serviceAccount/name"}},
		"a selector of labels that no node has": {values{}.at("policy.rules.UnauthorizedDetector", "deny").at("policy.detectors", []any{map[string]any{"user": "a", "nodeSelector": map[string]any{
			"matchLabels": map[string]any{"pool": "a b"}, "matchExpressions": []any{map[string]any{"key": "a/b/c", "operator": "Exists"}},
		}}}), []string{"/policy/detectors/0/nodeSelector/matchLabels/pool", "/policy/detectors/0/nodeSelector/matchExpressions/0/key"}},
		"an expression without its values": {values{}.at("policy.rules.UnauthorizedDetector", "deny").at("policy.detectors", []any{map[string]any{"user": "a", "nodeSelector": map[string]any{
			"matchExpressions": []any{map[string]any{"key": "a", "operator": "In"}, map[string]any{"key": "b", "operator": "Exists", "values": []any{"c"}}},
		}}}), []string{"policy.detectors[0].nodeSelector.matchExpressions[0].values", "policy.detectors[0].nodeSelector.matchExpressions[1].values"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, c.values)
			if err == nil {
				t.Fatal("was rendered")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("missing %q in: %v", want, err)
				}
			}
		})
	}
}

// elsewhere are values of a webhook that runs outside of the cluster.
func elsewhere(url string) values {
	return values{}.at("webhook.url", url).at("certificates.caBundle", pemOf("CERTIFICATE"))
}

func pemOf(block string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: []byte("of some authority")}))
}

// What is next to a value that is refused.
func TestValuesThatJustWorkAreNotRefused(t *testing.T) {
	for name, v := range map[string]values{
		"a controller beside, for some nodes":         values{}.at("controller.mode", "beside").at("controller.livenessSource", "kubelet").at("controller.externalNodes", "pool in (a,b),!gpu"),
		"a controller beside, for all nodes":          values{}.at("controller.mode", "beside").at("controller.livenessSource", "external"),
		"a short certificate that the webhook renews": values{}.at("certificates.duration", "1h"),
		"a long one that cert-manager renews":         values{}.at("certificates.mode", "cert-manager").at("certificates.duration", "87600h").at("certificates.renewBefore", "87599h"),
		"servers elsewhere, of any port":              elsewhere("https://[::1]:65535/validate/nodes"),
		"servers elsewhere, of the usual port":        elsewhere("https://webhook.example.com/"),
		"labels of one's own":                         values{}.at("commonLabels", map[string]any{"app.kubernetes.io/part-of": "platform", "team": ""}).at("monitoring.enabled", true),
		"a registry on a port":                        values{}.at("image.registry", "localhost:5000").at("image.tag", "v1.2.3-rc.1_x"),
		"a user whom a group makes a stand-in": values{}.at("policy.rules.UnauthorizedDetector", "deny").at("policy.standIns", []any{map[string]any{"user": "a", "group": "b"}}).
			at("policy.detectors", []any{map[string]any{"user": "a"}}),
	} {
		t.Run(name, func(t *testing.T) { render(t, v) })
	}
}

// The schema takes for a selector of nodes what the controller does.
func TestTheSchemaKnowsALabelSelector(t *testing.T) {
	text, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	pattern, _, err := unstructured.NestedString(schema, "properties", "controller", "properties", "externalNodes", "pattern")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(pattern)
	for _, selector := range []string{
		"", "a", "!a", "! a", "a=b", "a==b", "a!=b", "a = b", "a=", "a in (b)", "a in (b, c)", "a notin (b)", "a in(b)", "a > 1", "a<20", "a=b,c", " a = b , !c ",
		"example.com/a=b", "node-restriction.kubernetes.io/liveness=external", "A_b.c-d=E_f.g-h", "a in (,b)", "a in ()",
		"a in b", "a b", "=b", "a=b=c", "a,,b", "a,", ",a", "a=b c", "-a", "a=-b", "a/b/c", "/a", "Example.com/a", "a in (b", "a in", "!a=b", "a > b", "a>", "a=>b", "(a)", "a!b", "ä",
	} {
		_, err := labels.Parse(selector)
		if says := known.MatchString(selector); says != (err == nil) {
			t.Errorf("%q: %v by the schema, and the controller says %v", selector, says, err)
		}
	}
}

// Older API servers drop the conditions that keep kubelets away from a webhook
// that fails closed; B42 of the public failures.
func TestAnAPIServerWithoutMatchConditionsGetsNothing(t *testing.T) {
	for _, version := range []string{"1.27.0", "1.28.5", "1.29.9"} {
		if _, err := template(t, values{"install": "webhook-alone"}, "--kube-version", version); err == nil || !strings.Contains(err.Error(), "kubeVersion") {
			t.Errorf("%s: %v", version, err)
		}
	}
	for _, version := range []string{"1.30.0", "1.37.2", "1.33.1-gke.100", "1.34.0-eks-abc"} {
		if _, err := template(t, values{}, "--kube-version", version); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// plain is an object as its JSON says.
func plain(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
