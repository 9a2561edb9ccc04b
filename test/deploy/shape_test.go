package deploy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// each plays a test on everything that a documented value set renders.
func each(t *testing.T, play func(t *testing.T, all objects)) {
	t.Helper()
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) { play(t, render(t, values{}, "--values", example(t, name))) })
	}
}

// typed is a rendered object as its type, without a field that the type lacks.
func typed[T any](t *testing.T, all objects, kind, name string) *T {
	t.Helper()
	for _, o := range all {
		if o.GetKind() != kind || o.GetName() != name {
			continue
		}
		out := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, out, true); err != nil {
			t.Fatal(err)
		}
		return out
	}
	return nil
}

// B34 of the public failures: a webhook that sees more than it judges, or lets
// kubelets wait.
func TestTheWebhookIsAskedAboutNothingButNodesAndNeverWaitedForLong(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		w := typed[admissionv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "nodewarden-contract")
		if w == nil {
			return
		}
		for _, entry := range w.Webhooks {
			var asked []string
			for _, r := range entry.Rules {
				asked = append(asked, fmt.Sprintf("%s %s %s %s %s", r.Operations, r.APIGroups, r.APIVersions, r.Resources, *r.Scope))
			}
			want := []string{"[UPDATE] [] [v1] [nodes/status] Cluster", "[CREATE] [] [v1] [nodes] Cluster"}
			if !slices.Equal(asked, want) {
				t.Errorf("%s is asked about %q", entry.Name, asked)
			}
			if *entry.TimeoutSeconds > 3 || *entry.MatchPolicy != admissionv1.Equivalent || *entry.SideEffects != admissionv1.SideEffectClassNone {
				t.Errorf("%s: timeout %d, match policy %s, side effects %s", entry.Name, *entry.TimeoutSeconds, *entry.MatchPolicy, *entry.SideEffects)
			}
			if entry.NamespaceSelector != nil || entry.ObjectSelector != nil {
				t.Errorf("%s relies on a selector, which Nodes ignore or writers choose", entry.Name)
			}
			if len(entry.MatchConditions) == 0 {
				t.Errorf("%s lets kubelets wait", entry.Name)
			}
		}
	})
}

// B36: the node that died is the webhook's own.
func TestNoTwoReplicasShareAHostAndTheirPlaceIsKept(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		for _, o := range all.ofKind("Deployment") {
			d := deployment(t, all, o.GetName())
			pod := d.Spec.Template.Spec
			if *d.Spec.Replicas < 2 {
				t.Errorf("%s: %d replicas", d.Name, *d.Spec.Replicas)
			}
			anti := pod.Affinity.PodAntiAffinity
			if !slices.ContainsFunc(anti.RequiredDuringSchedulingIgnoredDuringExecution, apart("kubernetes.io/hostname", d)) {
				t.Errorf("%s: two replicas may share a host: %+v", d.Name, anti)
			}
			if !apart("topology.kubernetes.io/zone", d)(anti.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm) {
				t.Errorf("%s: replicas do not prefer different zones: %+v", d.Name, anti)
			}
			if pod.PriorityClassName != "system-cluster-critical" {
				t.Errorf("%s: priority %q", d.Name, pod.PriorityClassName)
			}
			for _, taint := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
				if !slices.ContainsFunc(pod.Tolerations, func(to corev1.Toleration) bool {
					return to.Key == taint && to.TolerationSeconds != nil && *to.TolerationSeconds == 30
				}) {
					t.Errorf("%s: does not leave a node with %s after 30 s", d.Name, taint)
				}
			}
			budget := typed[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget", d.Name)
			if budget == nil || !selects(t, budget.Spec.Selector, d) {
				t.Errorf("%s: no disruption budget for its pods", d.Name)
			}
		}
	})
}

// apart says whether a term keeps the Deployment's own pods apart by topology.
func apart(topology string, d *appsv1.Deployment) func(corev1.PodAffinityTerm) bool {
	return func(term corev1.PodAffinityTerm) bool {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		return err == nil && term.TopologyKey == topology && selector.Matches(labels.Set(d.Spec.Template.Labels))
	}
}

func selects(t *testing.T, s *metav1.LabelSelector, d *appsv1.Deployment) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(d.Spec.Template.Labels))
}

// B39: a server that goes has to be gone from everybody's mind first.
func TestAServerIsGrantedTheTimeItNeedsToDrain(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		for _, o := range all.ofKind("Deployment") {
			d := deployment(t, all, o.GetName())
			grace := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
			if drain, found := argument(d, "drain"); found {
				takes, err := time.ParseDuration(drain)
				if err != nil || takes < 10*time.Second || grace < takes+10*time.Second {
					t.Errorf("%s: drains for %s (%v) and is killed after %s", d.Name, takes, err, grace)
				}
			}
			rolling, away := d.Spec.Strategy.RollingUpdate, 0
			if d.Spec.Template.Spec.HostNetwork {
				away = 1 // two of them cannot share a node's ports
			}
			if rolling.MaxUnavailable.IntValue() != away || rolling.MaxSurge.IntValue() != 1-away {
				t.Errorf("%s: rolls with %+v", d.Name, rolling)
			}
		}
	})
}

// argument is the value of a container's flag.
func argument(d *appsv1.Deployment, name string) (string, bool) {
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value, true
		}
	}
	return "", false
}

// B42: some networks let the API server reach nodes on few ports only.
func TestPortsFitTogetherWhateverTheyAre(t *testing.T) {
	for _, host := range []bool{false, true} {
		for _, ports := range [][3]int{{9443, 443, 8080}, {10250, 443, 8080}, {10250, 10250, 10251}, {4443, 8443, 9999}} {
			t.Run(fmt.Sprint(host, ports), func(t *testing.T) {
				all := render(t, values{}.at("webhook.hostNetwork", host).at("webhook.port", ports[0]).at("webhook.servicePort", ports[1]).at("webhook.metricsPort", ports[2]))
				d := deployment(t, all, "nodewarden-webhook")
				named := map[string]int32{}
				for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
					named[p.Name] = p.ContainerPort
				}
				for name, is := range map[string]string{"webhook": "bind-address", "metrics": "metrics-bind-address"} {
					if listens, _ := argument(d, is); listens != ":"+strconv.Itoa(int(named[name])) {
						t.Errorf("--%s=%s, and the container declares %v", is, listens, named)
					}
				}
				s := typed[corev1.Service](t, all, "Service", "nodewarden-webhook")
				w := typed[admissionv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "nodewarden-contract")
				if port := s.Spec.Ports[0]; port.TargetPort.StrVal != "webhook" || port.Port != *w.Webhooks[0].ClientConfig.Service.Port {
					t.Errorf("the configuration calls %+v, the Service has %+v", w.Webhooks[0].ClientConfig.Service, port)
				}
				n := typed[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", "nodewarden-webhook")
				if got := n.Spec.Ingress[0].Ports[0].Port.StrVal; got != "webhook" || !selects(t, &n.Spec.PodSelector, d) {
					t.Errorf("the network policy opens %q", got)
				}
				if d.Spec.Template.Spec.HostNetwork != host {
					t.Errorf("hostNetwork is %v", d.Spec.Template.Spec.HostNetwork)
				}
			})
		}
	}
}

func TestAServerElsewhereNeedsNothingInTheCluster(t *testing.T) {
	all := render(t, values{}, "--values", example(t, "static-control-plane"))
	for _, kind := range []string{"Deployment", "Service", "Secret", "ConfigMap", "ServiceAccount"} {
		for name := range all.ofKind(kind) {
			if name != "nodewarden-verify" {
				t.Errorf("%s %s", kind, name)
			}
		}
	}
	w := typed[admissionv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "nodewarden-contract")
	if c := w.Webhooks[0].ClientConfig; c.Service != nil || c.URL == nil || len(c.CABundle) == 0 {
		t.Errorf("reached by %+v", c)
	}
}

// One account a server, and no server's account for anybody else.
func TestEveryServerHasAnAccountOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, all objects) {
		for _, o := range all.ofKind("Deployment") {
			d := deployment(t, all, o.GetName())
			if account := d.Spec.Template.Spec.ServiceAccountName; account != d.Name || all[key("ServiceAccount", namespace, account)] == nil {
				t.Errorf("%s runs as %q", d.Name, account)
			}
		}
	})
}
