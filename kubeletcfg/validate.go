package kubeletcfg

import (
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubelet/config/v1beta1"
)

// judge checks an effective configuration as kubelet 1.37.2 does before it
// starts. Left out is what depends on the host (cgroup v1 or v2) or on the
// version the binary was stamped with (showHiddenMetricsForVersion).
type judge struct {
	c      *Config
	gates  gates
	v      Version
	report func(at fieldPath, message string)
}

// rules holds every check in the order of this file.
var rules = []func(judge){
	judge.numbers,
	judge.choices,
	judge.imageGC,
	judge.imagePulls,
	judge.credentialPolicy,
	judge.cgroups,
	judge.nodeAllocatable,
	judge.reservedCPUs,
	judge.reservedMemory,
	judge.memoryQoS,
	judge.swap,
	judge.shutdown,
	judge.crashLoop,
	judge.taints,
	judge.sysctls,
	judge.userNamespaces,
	judge.logs,
	judge.logging,
	judge.tracing,
	judge.needsGates,
}

func (j judge) all() {
	for _, rule := range rules {
		rule(j)
	}
}

func (j judge) bad(field, format string, args ...any) {
	j.report(strings.Split(field, "."), fmt.Sprintf(format, args...))
}

func (j judge) on(gate string) bool { return j.gates.on(gate, j.v) }

// numbers checks what only has a range.
func (j judge) numbers() {
	c := j.c
	for _, n := range []struct {
		field      string
		value      int64
		least, top int64
	}{
		{"nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1, math.MaxInt32},
		{"eventBurst", int64(c.EventBurst), 0, math.MaxInt32},
		{"eventRecordQPS", int64(*c.EventRecordQPS), 0, math.MaxInt32},
		{"healthzPort", int64(*c.HealthzPort), 0, 65535},
		{"imageGCHighThresholdPercent", int64(*c.ImageGCHighThresholdPercent), 0, 100},
		{"imageGCLowThresholdPercent", int64(*c.ImageGCLowThresholdPercent), 0, 100},
		{"iptablesDropBit", int64(*c.IPTablesDropBit), 0, 31},
		{"iptablesMasqueradeBit", int64(*c.IPTablesMasqueradeBit), 0, 31},
		{"kubeAPIBurst", int64(c.KubeAPIBurst), 0, math.MaxInt32},
		{"kubeAPIQPS", int64(*c.KubeAPIQPS), 0, math.MaxInt32},
		{"nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1, math.MaxInt32},
		{"maxOpenFiles", c.MaxOpenFiles, 0, math.MaxInt64},
		{"maxPods", int64(c.MaxPods), 0, math.MaxInt32},
		{"oomScoreAdj", int64(*c.OOMScoreAdj), -1000, 1000},
		{"podsPerCore", int64(c.PodsPerCore), 0, math.MaxInt32},
		{"port", int64(c.Port), 1, 65535},
		{"readOnlyPort", int64(c.ReadOnlyPort), 0, 65535},
		{"registryBurst", int64(c.RegistryBurst), 0, math.MaxInt32},
		{"registryPullQPS", int64(*c.RegistryPullQPS), 0, math.MaxInt32},
		{"containerLogMaxWorkers", int64(*c.ContainerLogMaxWorkers), 1, math.MaxInt32},
		{"containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2, math.MaxInt32},
	} {
		if n.value < n.least || n.value > n.top {
			j.bad(n.field, "%d is out of range; it must be %s", n.value, span(n.least, n.top))
		}
	}
}

func span(least, top int64) string {
	if top >= math.MaxInt32 {
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("from %d to %d", least, top)
}

// choices checks what only has a list of allowed values.
func (j judge) choices() {
	for _, o := range []struct {
		field, value string
		allowed      []string
	}{
		{"topologyManagerPolicy", j.c.TopologyManagerPolicy, []string{"none", "best-effort", "restricted", "single-numa-node"}},
		{"topologyManagerScope", j.c.TopologyManagerScope, []string{"container", "pod"}},
		{"hairpinMode", j.c.HairpinMode, []string{"none", "hairpin-veth", "promiscuous-bridge"}},
		{"memoryReservationPolicy", string(j.c.MemoryReservationPolicy), []string{"None", "TieredReservation"}},
		{"logging.format", j.c.Logging.Format, []string{"text", "json"}},
	} {
		if !slices.Contains(o.allowed, o.value) {
			j.bad(o.field, "%q is not one of %s", o.value, strings.Join(o.allowed, ", "))
		}
	}
}

func (j judge) imageGC() {
	low, high := *j.c.ImageGCLowThresholdPercent, *j.c.ImageGCHighThresholdPercent
	if low >= high {
		j.bad("imageGCLowThresholdPercent", "%d must be below imageGCHighThresholdPercent, %d", low, high)
	}
	least, most := j.c.ImageMinimumGCAge.Duration, j.c.ImageMaximumGCAge.Duration
	for field, age := range map[string]time.Duration{"imageMinimumGCAge": least, "imageMaximumGCAge": most} {
		if age < 0 {
			j.bad(field, "%s must not be negative", age)
		}
	}
	if most > 0 && most <= least {
		j.bad("imageMaximumGCAge", "%s must be longer than imageMinimumGCAge, %s", most, least)
	}
}

func (j judge) imagePulls() {
	most := j.c.MaxParallelImagePulls
	if most == nil {
		return
	}
	if *most < 1 {
		j.bad("maxParallelImagePulls", "%d must be at least 1", *most)
	}
	if *most > 1 && *j.c.SerializeImagePulls {
		j.bad("maxParallelImagePulls", "%d needs serializeImagePulls: false", *most)
	}
}

func (j judge) credentialPolicy() {
	policy, list := j.c.ImagePullCredentialsVerificationPolicy, j.c.PreloadedImagesVerificationAllowlist
	if !j.on("KubeletEnsureSecretPulledImages") {
		if policy != "" {
			j.bad("imagePullCredentialsVerificationPolicy", "%q needs the feature gate KubeletEnsureSecretPulledImages", policy)
		}
		if len(list) > 0 {
			j.bad("preloadedImagesVerificationAllowlist", "needs the feature gate KubeletEnsureSecretPulledImages")
		}
		return
	}
	allowed := []v1beta1.ImagePullCredentialsVerificationPolicy{v1beta1.NeverVerify, v1beta1.NeverVerifyPreloadedImages,
		v1beta1.NeverVerifyAllowlistedImages, v1beta1.AlwaysVerify}
	if !slices.Contains(allowed, policy) {
		j.bad("imagePullCredentialsVerificationPolicy", "%q is not one of %q", policy, allowed)
	}
	if len(list) > 0 && policy != v1beta1.NeverVerifyAllowlistedImages {
		j.bad("preloadedImagesVerificationAllowlist", "needs imagePullCredentialsVerificationPolicy: %s", v1beta1.NeverVerifyAllowlistedImages)
		return
	}
	for _, pattern := range list {
		if why := badPattern(pattern); why != "" {
			j.bad("preloadedImagesVerificationAllowlist", "%q %s", pattern, why)
		}
	}
}

// imageName is a repository without tag or digest.
var imageName = regexp.MustCompile(`^([A-Za-z0-9.\-]+(:\d+)?/|\[[0-9a-fA-F:]+\](:\d+)?/)?[a-z0-9]+([._\-/]+[a-z0-9]+)*$`)

func badPattern(pattern string) string {
	prefix, wild := strings.CutSuffix(pattern, "/*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		return "has spaces around it"
	case prefix == "":
		return "names no registry"
	case strings.Contains(prefix, "*"):
		return "may have a * only at its end, after a /"
	case !wild && !imageName.MatchString(prefix):
		return "is not an image without tag and digest"
	}
	return ""
}

func (j judge) cgroups() {
	if j.c.SystemCgroups != "" && j.c.CgroupRoot == "" {
		j.bad("systemCgroups", "%q needs cgroupRoot", j.c.SystemCgroups)
	}
	period := j.c.CPUCFSQuotaPeriod.Duration
	switch custom := j.on("CustomCPUCFSQuotaPeriod"); {
	case !custom && period != 100*time.Millisecond:
		j.bad("cpuCFSQuotaPeriod", "%s needs the feature gate CustomCPUCFSQuotaPeriod", period)
	case custom && (period < time.Millisecond || period > time.Second):
		j.bad("cpuCFSQuotaPeriod", "%s is out of range; it must be from 1ms to 1s", period)
	}
}

func (j judge) nodeAllocatable() {
	const field = "enforceNodeAllocatable"
	list := j.c.EnforceNodeAllocatable
	for _, who := range []string{"system-reserved", "kube-reserved"} {
		if slices.Contains(list, who) && slices.Contains(list, who+"-compressible") {
			j.bad(field, "holds both %s and %s-compressible; keep one", who, who)
		}
	}
	seen := map[string]bool{}
	for _, key := range list {
		if seen[key] {
			j.bad(field, "holds %q twice", key)
			continue
		}
		seen[key] = true
		j.enforced(field, key)
	}
}

func (j judge) enforced(field, key string) {
	switch key {
	case "none":
		if len(j.c.EnforceNodeAllocatable) > 1 {
			j.bad(field, "holds none and something else")
		}
		return
	case "pods":
	case "system-reserved", "system-reserved-compressible":
		if j.c.SystemReservedCgroup == "" {
			j.bad(field, "%q needs systemReservedCgroup", key)
		}
	case "kube-reserved", "kube-reserved-compressible":
		if j.c.KubeReservedCgroup == "" {
			j.bad(field, "%q needs kubeReservedCgroup", key)
		}
	default:
		j.bad(field, "%q is not one of pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible, none", key)
		return
	}
	if !*j.c.CgroupsPerQOS {
		j.bad(field, "%q needs cgroupsPerQOS: true; without it, write enforceNodeAllocatable: [none]", key)
	}
}

// cpuList is a list of CPUs and ranges of them, such as 0-3,8.
var cpuList = regexp.MustCompile(`^\d+(-\d+)?(,\d+(-\d+)?)*$`)

func (j judge) reservedCPUs() {
	cpus := j.c.ReservedSystemCPUs
	if cpus == "" {
		return
	}
	if j.c.SystemReservedCgroup != "" || j.c.KubeReservedCgroup != "" {
		j.bad("reservedSystemCPUs", "%q cannot be used with systemReservedCgroup or kubeReservedCgroup", cpus)
	}
	if !cpuList.MatchString(cpus) || backwards(cpus) {
		j.bad("reservedSystemCPUs", "%q is not a list of CPUs such as 0-3,8", cpus)
	}
}

func backwards(cpus string) bool {
	for _, part := range strings.Split(cpus, ",") {
		var from, to int
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n == 2 && from > to {
			return true
		}
	}
	return false
}

func (j judge) reservedMemory() {
	type slot struct {
		node     int32
		resource corev1.ResourceName
	}
	seen := map[slot]bool{}
	for _, r := range j.c.ReservedMemory {
		for name, amount := range r.Limits {
			if name != corev1.ResourceMemory && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				j.bad("reservedMemory", "NUMA node %d: %q is neither memory nor hugepages-<size>", r.NumaNode, name)
			}
			if amount.IsZero() {
				j.bad("reservedMemory", "NUMA node %d: %s is zero", r.NumaNode, name)
			}
			if seen[slot{r.NumaNode, name}] {
				j.bad("reservedMemory", "NUMA node %d: %s is there twice", r.NumaNode, name)
			}
			seen[slot{r.NumaNode, name}] = true
		}
	}
}

func (j judge) memoryQoS() {
	factor := j.c.MemoryThrottlingFactor
	if factor != nil && (*factor <= 0 || *factor > 1) {
		j.bad("memoryThrottlingFactor", "%v must be above 0 and at most 1", *factor)
	}
	if j.on("MemoryQoS") {
		return
	}
	// 0.9 was the default once and is still in many files.
	if factor != nil && *factor != 0.9 {
		j.bad("memoryThrottlingFactor", "%v needs the feature gate MemoryQoS", *factor)
	}
	if j.c.MemoryReservationPolicy == v1beta1.TieredReservationMemoryReservationPolicy {
		j.bad("memoryReservationPolicy", "%q needs the feature gate MemoryQoS", j.c.MemoryReservationPolicy)
	}
}

func (j judge) swap() {
	behavior := j.c.MemorySwap.SwapBehavior
	switch {
	case behavior == "":
	case !j.on("NodeSwap"):
		j.bad("memorySwap.swapBehavior", "%q needs the feature gate NodeSwap", behavior)
	case behavior != "NoSwap" && behavior != "LimitedSwap":
		j.bad("memorySwap.swapBehavior", "%q is not one of NoSwap, LimitedSwap", behavior)
	}
}

func (j judge) shutdown() {
	whole, critical := j.c.ShutdownGracePeriod.Duration, j.c.ShutdownGracePeriodCriticalPods.Duration
	byPriority := len(j.c.ShutdownGracePeriodByPodPriority) > 0
	if j.on("GracefulNodeShutdown") {
		if critical > whole {
			j.bad("shutdownGracePeriodCriticalPods", "%s must not be longer than shutdownGracePeriod, %s", critical, whole)
		}
		for field, d := range map[string]time.Duration{"shutdownGracePeriod": whole, "shutdownGracePeriodCriticalPods": critical} {
			if d < 0 || d > 0 && d < time.Second {
				j.bad(field, "%s must be 0s or at least 1s", d)
			}
		}
	} else if whole > 0 || critical > 0 {
		j.bad("shutdownGracePeriod", "needs the feature gate GracefulNodeShutdown")
	}
	switch {
	case byPriority && !j.on("GracefulNodeShutdownBasedOnPodPriority"):
		j.bad("shutdownGracePeriodByPodPriority", "needs the feature gate GracefulNodeShutdownBasedOnPodPriority")
	case byPriority && (whole > 0 || critical > 0):
		j.bad("shutdownGracePeriodByPodPriority", "cannot be used with shutdownGracePeriod")
	}
}

func (j judge) crashLoop() {
	most := j.c.CrashLoopBackOff.MaxContainerRestartPeriod
	const field = "crashLoopBackOff.maxContainerRestartPeriod"
	switch on := j.on("KubeletCrashLoopBackOffMax"); {
	case most == nil:
	case !on:
		j.bad(field, "%s needs the feature gate KubeletCrashLoopBackOffMax", most.Duration)
	case most.Milliseconds() < 1000 || most.Milliseconds() > 300_000:
		j.bad(field, "%s is out of range; it must be from 1s to 300s", most.Duration)
	}
}

func (j judge) taints() {
	for _, t := range j.c.RegisterWithTaints {
		effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
		switch {
		case len(validation.IsQualifiedName(t.Key)) > 0, len(validation.IsValidLabelValue(t.Value)) > 0:
			j.bad("registerWithTaints", "%s=%s has no valid key or value", t.Key, t.Value)
		case t.Effect != "" && !slices.Contains(effects, t.Effect):
			j.bad("registerWithTaints", "%s: effect %q is not one of %q", t.Key, t.Effect, effects)
		case t.TimeAdded != nil:
			j.bad("registerWithTaints", "%s: timeAdded must be left out", t.Key)
		}
	}
}

var (
	sysctlName       = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)
	namespacedSysctl = regexp.MustCompile(`^(net\..*|fs\.mqueue\..*|user\..*|kernel\.(domainname|sem|shm|shmall|shmmax|shmmni|shm_rmid_forced|msg|msgmax|msgmnb|msgmni))$`)
)

func (j judge) sysctls() {
	if len(j.c.DefaultPodSysctls) == 0 {
		return
	}
	if !j.on("DefaultPodSysctls") {
		j.bad("defaultPodSysctls", "needs the feature gate DefaultPodSysctls")
		return
	}
	seen := map[string]bool{}
	for name := range j.c.DefaultPodSysctls {
		dotted := dottedSysctl(name)
		switch {
		case len(name) > 253 || !sysctlName.MatchString(name):
			j.report(fieldPath{"defaultPodSysctls", name}, "is not the name of a sysctl")
		case !namespacedSysctl.MatchString(dotted):
			j.report(fieldPath{"defaultPodSysctls", name}, "is not a namespaced sysctl")
		case seen[dotted]:
			j.report(fieldPath{"defaultPodSysctls", name}, "is there twice, written in two ways")
		}
		seen[dotted] = true
	}
}

// dottedSysctl swaps . and / in a name whose first separator is a /.
func dottedSysctl(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(name)
}

func (j judge) userNamespaces() {
	const field, unit = "userNamespaces.idsPerPod", 65536
	if j.c.UserNamespaces == nil || j.c.UserNamespaces.IDsPerPod == nil {
		return
	}
	ids := *j.c.UserNamespaces.IDsPerPod
	if ids < unit || ids%unit != 0 || ids > math.MaxUint32 {
		j.bad(field, "%d must be a multiple of %d and fit into 32 bits", ids, unit)
	}
}

// logs is about the logs of containers.
func (j judge) logs() {
	if every := j.c.ContainerLogMonitorInterval.Duration; every < 3*time.Second {
		j.bad("containerLogMonitorInterval", "%s must be at least 3s", every)
	}
	dir := j.c.PodLogsDir
	ascii := strings.IndexFunc(dir, func(r rune) bool { return r > 127 }) < 0
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !ascii {
		j.bad("podLogsDir", "%q must be an absolute, clean path of ASCII characters", dir)
	}
	if *j.c.EnableSystemLogQuery && !*j.c.EnableSystemLogHandler {
		j.bad("enableSystemLogQuery", "needs enableSystemLogHandler: true")
	}
}

// logging is about the log of the kubelet itself.
func (j judge) logging() {
	l := j.c.Logging
	if every := l.FlushFrequency.Duration.Duration; every <= 0 {
		j.bad("logging.flushFrequency", "%s must be above zero", every)
	}
	if l.Verbosity > math.MaxInt32 {
		j.bad("logging.verbosity", "%d must be at most %d", l.Verbosity, math.MaxInt32)
	}
	if len(l.VModule) > 0 && l.Format != "text" {
		j.bad("logging.vmodule", "works only with logging.format: text")
	}
	for _, item := range l.VModule {
		if item.FilePattern == "" || strings.ContainsAny(item.FilePattern, "=,") || item.Verbosity > math.MaxInt32 {
			j.bad("logging.vmodule", "filePattern %q must be a name without = and comma", item.FilePattern)
		}
	}
	if j.on("LoggingAlphaOptions") {
		return
	}
	for field, o := range map[string]struct{ split, buffered bool }{
		"logging.options.text": {l.Options.Text.SplitStream, l.Options.Text.InfoBufferSize.Value() != 0},
		"logging.options.json": {l.Options.JSON.SplitStream, l.Options.JSON.InfoBufferSize.Value() != 0},
	} {
		if o.split || o.buffered {
			j.bad(field, "needs the feature gate LoggingAlphaOptions")
		}
	}
}

func (j judge) tracing() {
	t := j.c.Tracing
	if t == nil {
		return
	}
	if rate := t.SamplingRatePerMillion; rate != nil && (*rate < 0 || *rate > 1_000_000) {
		j.bad("tracing.samplingRatePerMillion", "%d must be from 0 to 1000000", *rate)
	}
	if t.Endpoint == nil || !strings.Contains(*t.Endpoint, "//") {
		return
	}
	u, err := url.Parse(*t.Endpoint)
	if err != nil || !slices.Contains([]string{"dns", "unix", "unix-abstract"}, u.Scheme) {
		j.bad("tracing.endpoint", "%q must be host:port or begin with dns, unix or unix-abstract", *t.Endpoint)
	}
}

// needsGates checks what only needs a feature gate, or must not be used.
func (j judge) needsGates() {
	for _, n := range []struct {
		field, gate string
		used        bool
	}{
		{"imageMaximumGCAge", "ImageMaximumGCAge", j.c.ImageMaximumGCAge.Duration != 0},
		{"serverTLSBootstrap", "RotateKubeletServerCertificate", j.c.ServerTLSBootstrap},
		{"enableSystemLogQuery", "NodeLogQuery", *j.c.EnableSystemLogQuery},
	} {
		_, known := gateStage(n.gate, j.v)
		if n.used && known && !j.on(n.gate) {
			j.bad(n.field, "needs the feature gate %s", n.gate)
		}
	}
	if j.c.RunOnce {
		j.bad("runOnce", "true is no longer supported; leave it out")
	}
}
