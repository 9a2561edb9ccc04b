package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"time"

	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
	"github.com/nodewarden/nodewarden/controller"
	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

const (
	configVersion = "config.nodewarden.dev/v1alpha1"
	configKind    = "ControllerConfiguration"
)

// config is the configuration file, and what the flags change. A flag that is
// given wins over the file.
type config struct {
	metav1.TypeMeta `json:",inline"`

	NodeLivenessSource        lifecycle.Source `json:"nodeLivenessSource"`
	ExternalNodes             string           `json:"externalNodes,omitempty"`
	Mode                      controller.Mode  `json:"mode"`
	NodeMonitorPeriod         duration         `json:"nodeMonitorPeriod"`
	NodeMonitorGracePeriod    duration         `json:"nodeMonitorGracePeriod"`
	NodeStartupGracePeriod    duration         `json:"nodeStartupGracePeriod"`
	NodeEvictionRate          float32          `json:"nodeEvictionRate"`
	SecondaryNodeEvictionRate float32          `json:"secondaryNodeEvictionRate"`
	LargeClusterSizeThreshold int32            `json:"largeClusterSizeThreshold"`
	UnhealthyZoneThreshold    float32          `json:"unhealthyZoneThreshold"`

	FeatureGates     map[string]bool  `json:"featureGates,omitempty"`
	ClientConnection clientConnection `json:"clientConnection"`
	LeaderElection   leaderElection   `json:"leaderElection"`

	MetricsBindAddress string `json:"metricsBindAddress"`
}

type clientConnection struct {
	Kubeconfig string  `json:"kubeconfig,omitempty"`
	QPS        float32 `json:"qps"`
	Burst      int     `json:"burst"`
}

type leaderElection struct {
	LeaderElect       bool     `json:"leaderElect"`
	LeaseDuration     duration `json:"leaseDuration"`
	RenewDeadline     duration `json:"renewDeadline"`
	RetryPeriod       duration `json:"retryPeriod"`
	ResourceNamespace string   `json:"resourceNamespace,omitempty"`
	ResourceName      string   `json:"resourceName"`
}

// defaults are those of kube-controller-manager, except for the client limits:
// its 20 requests a second make one dead node with many pods take ten seconds.
func defaults() *config {
	o := controller.DefaultOptions()
	return &config{
		TypeMeta:                  metav1.TypeMeta{APIVersion: configVersion, Kind: configKind},
		NodeLivenessSource:        o.LivenessSource,
		Mode:                      o.Mode,
		NodeMonitorPeriod:         duration{Duration: o.NodeMonitorPeriod},
		NodeMonitorGracePeriod:    duration{Duration: o.NodeMonitorGracePeriod},
		NodeStartupGracePeriod:    duration{Duration: o.NodeStartupGracePeriod},
		NodeEvictionRate:          o.NodeEvictionRate,
		SecondaryNodeEvictionRate: o.SecondaryNodeEvictionRate,
		LargeClusterSizeThreshold: o.LargeClusterSizeThreshold,
		UnhealthyZoneThreshold:    o.UnhealthyZoneThreshold,
		ClientConnection:          clientConnection{QPS: 1000, Burst: 2000},
		LeaderElection: leaderElection{
			LeaderElect:   true,
			LeaseDuration: duration{Duration: 15 * time.Second},
			RenewDeadline: duration{Duration: 10 * time.Second},
			RetryPeriod:   duration{Duration: 2 * time.Second},
			ResourceName:  "nodewarden-controller",
		},
		MetricsBindAddress: boot.DefaultMetricsAddress,
	}
}

// addFlags binds flags to c, whose values are their defaults.
func (c *config) addFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&c.NodeLivenessSource), "node-liveness-source", string(c.NodeLivenessSource),
		"Whose word on a node's liveness counts: kubelet, whose silence is timed here, or external, a detector that writes Ready=Unknown. external needs --feature-gates="+controller.Gate+"=true.")
	fs.StringVar(&c.ExternalNodes, "external-nodes", c.ExternalNodes,
		"Label selector of the nodes whose source is external while all others stay with kubelet. Prefer a label under node-restriction.kubernetes.io/, which a kubelet cannot set on its own node.")
	fs.StringVar((*string)(&c.Mode), "mode", string(c.Mode),
		"replace does the whole node lifecycle and needs the in-tree node-lifecycle-controller off; beside does only what a running one leaves undone after an outside Ready=Unknown.")
	fs.DurationVar(&c.NodeMonitorPeriod.Duration, "node-monitor-period", c.NodeMonitorPeriod.Duration,
		"Longest time for which a change can go unnoticed. Changes are acted on when they arrive; this is the safety net.")
	fs.DurationVar(&c.NodeMonitorGracePeriod.Duration, "node-monitor-grace-period", c.NodeMonitorGracePeriod.Duration,
		"Silence of a kubelet after which its node is marked Unknown. Not used for nodes of the external source.")
	fs.DurationVar(&c.NodeStartupGracePeriod.Duration, "node-startup-grace-period", c.NodeStartupGracePeriod.Duration,
		"Silence after which a node that has no Ready condition is marked Unknown.")
	fs.Float32Var(&c.NodeEvictionRate, "node-eviction-rate", c.NodeEvictionRate,
		"Nodes per second and zone that are tainted NoExecute while the zone is healthy. 0 means none.")
	fs.Float32Var(&c.SecondaryNodeEvictionRate, "secondary-node-eviction-rate", c.SecondaryNodeEvictionRate,
		"The same for a partly disrupted zone of more than --large-cluster-size-threshold nodes; smaller ones get none.")
	fs.Int32Var(&c.LargeClusterSizeThreshold, "large-cluster-size-threshold", c.LargeClusterSizeThreshold,
		"Number of nodes above which a zone is large.")
	fs.Float32Var(&c.UnhealthyZoneThreshold, "unhealthy-zone-threshold", c.UnhealthyZoneThreshold,
		"Share of nodes down, of at least three, at which a zone is partly disrupted.")
	c.ClientConnection.addFlags(fs)
	c.LeaderElection.addFlags(fs)
}

func (c *clientConnection) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "Path of a kubeconfig. Without it $KUBECONFIG, or else the service account of the pod, is used.")
	fs.Float32Var(&c.QPS, "kube-api-qps", c.QPS, "Requests per second to the API server.")
	fs.IntVar(&c.Burst, "kube-api-burst", c.Burst, "Requests that may be sent at once above --kube-api-qps.")
}

func (l *leaderElection) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&l.LeaderElect, "leader-elect", l.LeaderElect, "Let only one replica act.")
	fs.DurationVar(&l.LeaseDuration.Duration, "leader-elect-lease-duration", l.LeaseDuration.Duration, "Time without a renewal after which another replica takes over.")
	fs.DurationVar(&l.RenewDeadline.Duration, "leader-elect-renew-deadline", l.RenewDeadline.Duration, "Time for which the leader tries to renew before it gives up.")
	fs.DurationVar(&l.RetryPeriod.Duration, "leader-elect-retry-period", l.RetryPeriod.Duration, "Time between attempts to become the leader, or to stay it.")
	fs.StringVar(&l.ResourceNamespace, "leader-elect-resource-namespace", l.ResourceNamespace, "Namespace of the Lease that elects; empty means the pod's own.")
	fs.StringVar(&l.ResourceName, "leader-elect-resource-name", l.ResourceName, "Name of the Lease that elects.")
}

// load reads a configuration file into c. It reports every problem at once.
func (c *config) load(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if several(raw) {
		return fmt.Errorf("--config %s: holds more than one YAML document; keep one", path)
	}
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	var noNumber *json.UnsupportedValueError
	if errors.As(err, &noNumber) {
		err = errors.Join(noNumbers(raw)...)
	}
	if err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	c.TypeMeta = metav1.TypeMeta{}
	problems, err := kjson.UnmarshalStrict(asJSON, c)
	if err != nil {
		return fmt.Errorf("--config %s: %w", path, mistyped(err))
	}
	for _, d := range []struct {
		at       string
		duration duration
	}{
		{"nodeMonitorPeriod", c.NodeMonitorPeriod},
		{"nodeMonitorGracePeriod", c.NodeMonitorGracePeriod},
		{"nodeStartupGracePeriod", c.NodeStartupGracePeriod},
		{"leaderElection.leaseDuration", c.LeaderElection.LeaseDuration},
		{"leaderElection.renewDeadline", c.LeaderElection.RenewDeadline},
		{"leaderElection.retryPeriod", c.LeaderElection.RetryPeriod},
	} {
		if d.duration.unreadable != nil {
			problems = append(problems, field.Invalid(field.NewPath(d.at), *d.duration.unreadable, "is not a duration; write for example 5s or 40s"))
		}
	}
	if c.APIVersion != configVersion {
		problems = append(problems, field.Invalid(field.NewPath("apiVersion"), c.APIVersion, "must be "+configVersion))
	}
	if c.Kind != configKind {
		problems = append(problems, field.Invalid(field.NewPath("kind"), c.Kind, "must be "+configKind))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	return nil
}

// several reports whether something follows the first document. Text that cannot
// be read is told as such later.
func several(text []byte) bool {
	documents := yamlv3.NewDecoder(bytes.NewReader(text))
	var first, next yamlv3.Node
	return documents.Decode(&first) == nil && !errors.Is(documents.Decode(&next), io.EOF)
}

// noNumbers are the values of a YAML text that are floats to it, and nothing to
// JSON: .nan and .inf.
func noNumbers(text []byte) []error {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return []error{err}
	}
	var found []error
	var look func(at *field.Path, n *yamlv3.Node)
	look = func(at *field.Path, n *yamlv3.Node) {
		var f float64
		switch {
		case n.Kind == yamlv3.DocumentNode:
			look(at, n.Content[0])
		case n.Kind == yamlv3.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				look(at.Child(n.Content[i].Value), n.Content[i+1])
			}
		case n.Kind == yamlv3.SequenceNode:
			for i, each := range n.Content {
				look(at.Index(i), each)
			}
		case n.ShortTag() == "!!float" && n.Decode(&f) == nil && (math.IsNaN(f) || math.IsInf(f, 0)):
			found = append(found, field.Invalid(at, n.Value, "is no number to reckon with; write one such as 0.1, or quotes around it where text belongs"))
		}
	}
	look(nil, &document)
	return found
}

// duration is a time.Duration written like "10s". Text that is none is kept
// until load, which can tell at which field it stands.
type duration struct {
	time.Duration
	unreadable *string
}

// UnmarshalJSON never fails on a value of the wrong form; load reports it.
func (d *duration) UnmarshalJSON(b []byte) error { //nolint:unparam // json.Unmarshaler has an error
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	var err error
	if d.Duration, err = time.ParseDuration(s); err != nil {
		d.unreadable = &s
	}
	return nil
}

// MarshalJSON writes the duration as text.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

var wrongType = regexp.MustCompile(`cannot unmarshal (\w+).* into Go (?:struct field \w+\.(\S+)|value) of type`)

// mistyped is err, which names Go's types, as an error at the value.
func mistyped(err error) error {
	m := wrongType.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	if m[2] == "" {
		return fmt.Errorf("is one %s; want fields, such as apiVersion: %s", m[1], configVersion)
	}
	return field.TypeInvalid(field.NewPath(m[2]), m[1], "something else belongs here; what YAML takes for a number, for true or for false needs quotes to be text")
}

// options are the controller's, together with everything wrong with c.
func (c *config) options(gate featuregate.FeatureGate) (controller.Options, field.ErrorList) {
	var errs field.ErrorList
	o := controller.Options{
		LivenessSource:            c.NodeLivenessSource,
		ExternalEnabled:           gate.Enabled(externalDetection),
		Mode:                      c.Mode,
		NodeMonitorPeriod:         c.NodeMonitorPeriod.Duration,
		NodeMonitorGracePeriod:    c.NodeMonitorGracePeriod.Duration,
		NodeStartupGracePeriod:    c.NodeStartupGracePeriod.Duration,
		NodeEvictionRate:          c.NodeEvictionRate,
		SecondaryNodeEvictionRate: c.SecondaryNodeEvictionRate,
		LargeClusterSizeThreshold: c.LargeClusterSizeThreshold,
		UnhealthyZoneThreshold:    c.UnhealthyZoneThreshold,
	}
	if c.ExternalNodes != "" {
		selector, err := labels.Parse(c.ExternalNodes)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("externalNodes"), c.ExternalNodes, "must be a label selector: "+err.Error()))
		} else {
			o.ExternalNodes = selector
		}
	}
	errs = append(errs, o.Validate()...)
	errs = append(errs, c.ClientConnection.validate(field.NewPath("clientConnection"))...)
	return o, append(errs, c.LeaderElection.validate(field.NewPath("leaderElection"))...)
}

func (c clientConnection) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !(c.QPS > 0 && c.QPS <= math.MaxFloat32) {
		errs = append(errs, field.Invalid(path.Child("qps"), c.QPS, "must be a number above 0"))
	}
	if c.Burst <= 0 {
		errs = append(errs, field.Invalid(path.Child("burst"), c.Burst, "must be above 0"))
	}
	return errs
}

// jitter is how much later than its retry period client-go may try; the renew
// deadline has to leave room for that.
const jitter = 1.2

func (l leaderElection) validate(path *field.Path) field.ErrorList {
	if !l.LeaderElect {
		return nil
	}
	var errs field.ErrorList
	if l.RetryPeriod.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("retryPeriod"), l.RetryPeriod.Duration.String(), "must be longer than 0s"))
	}
	if l.RenewDeadline.Seconds() <= jitter*l.RetryPeriod.Seconds() {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline.Duration.String(), "must be longer than 1.2 times retryPeriod"))
	}
	// The Lease holds whole seconds, and client-go cuts the rest off.
	if l.LeaseDuration.Truncate(time.Second) <= l.RenewDeadline.Duration {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), l.LeaseDuration.Duration.String(), "must be longer than renewDeadline in whole seconds, for fractions are cut off; raise it, or shorten renewDeadline"))
	}
	for _, why := range validation.IsDNS1123Subdomain(l.ResourceName) {
		errs = append(errs, field.Invalid(path.Child("resourceName"), l.ResourceName, "must name a Lease: "+why))
	}
	if l.ResourceNamespace == "" {
		return errs
	}
	for _, why := range validation.IsDNS1123Label(l.ResourceNamespace) {
		errs = append(errs, field.Invalid(path.Child("resourceNamespace"), l.ResourceNamespace, "must be a namespace: "+why))
	}
	return errs
}
