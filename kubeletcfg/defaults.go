package kubeletcfg

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// defaultEvictionHard applies where a --config file says nothing of evictionHard.
var defaultEvictionHard = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

// set gives *field its default where it holds the zero value: a kubelet cannot
// tell an explicit zero from an absent field unless the field is a pointer.
func set[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

// setPtr gives a pointer field its default where it is absent.
func setPtr[T any](field **T, def T) {
	if *field == nil {
		*field = &def
	}
}

func seconds(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// setDefaults fills in what kubelet 1.37.2 fills in, g being the feature gates
// known at that moment.
func setDefaults(c *v1beta1.KubeletConfiguration, g gates, v Version) {
	defaultReporting(c)
	defaultServer(c)
	defaultClients(c)
	defaultResources(c)
	defaultImages(c)
	defaultRuntime(c)
	defaultGated(c, g, v)
}

func defaultReporting(c *v1beta1.KubeletConfiguration) {
	// Who sets only the update frequency reports as often as it updates.
	if c.NodeStatusUpdateFrequency.Duration == 0 {
		set(&c.NodeStatusReportFrequency, seconds(300))
	}
	set(&c.NodeStatusReportFrequency, c.NodeStatusUpdateFrequency)
	set(&c.NodeStatusUpdateFrequency, seconds(10))
	set(&c.NodeLeaseDurationSeconds, 40)
	setPtr(&c.NodeStatusMaxImages, 50)
	setPtr(&c.RegisterNode, true)
}

func defaultServer(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.EnableServer, true)
	set(&c.Address, "0.0.0.0")
	set(&c.Port, 10250)
	setPtr(&c.Authentication.Anonymous.Enabled, false)
	setPtr(&c.Authentication.Webhook.Enabled, true)
	set(&c.Authentication.Webhook.CacheTTL, seconds(120))
	set(&c.Authorization.Mode, v1beta1.KubeletAuthorizationModeWebhook)
	set(&c.Authorization.Webhook.CacheAuthorizedTTL, seconds(300))
	set(&c.Authorization.Webhook.CacheUnauthorizedTTL, seconds(30))
	setPtr(&c.EnableDebuggingHandlers, true)
	setPtr(&c.HealthzPort, 10248)
	set(&c.HealthzBindAddress, "127.0.0.1")
	set(&c.StreamingConnectionIdleTimeout, seconds(4*3600))
	setPtr(&c.EnableSystemLogHandler, true)
	setPtr(&c.EnableSystemLogQuery, false)
	setPtr(&c.EnableProfilingHandler, true)
	setPtr(&c.EnableDebugFlagsHandler, true)
}

func defaultClients(c *v1beta1.KubeletConfiguration) {
	set(&c.SyncFrequency, seconds(60))
	set(&c.FileCheckFrequency, seconds(20))
	set(&c.HTTPCheckFrequency, seconds(20))
	setPtr(&c.EventRecordQPS, 50)
	set(&c.EventBurst, 100)
	set(&c.ContentType, "application/vnd.kubernetes.protobuf")
	setPtr(&c.KubeAPIQPS, 50)
	set(&c.KubeAPIBurst, 100)
	set(&c.ConfigMapAndSecretChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy)
}

func defaultResources(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.OOMScoreAdj, -999)
	setPtr(&c.CgroupsPerQOS, true)
	set(&c.CgroupDriver, "cgroupfs")
	set(&c.CPUManagerPolicy, "none")
	set(&c.CPUManagerReconcilePeriod, seconds(10))
	set(&c.MemoryManagerPolicy, v1beta1.NoneMemoryManagerPolicy)
	set(&c.TopologyManagerPolicy, v1beta1.NoneTopologyManagerPolicy)
	set(&c.TopologyManagerScope, v1beta1.ContainerTopologyManagerScope)
	set(&c.MaxPods, 110)
	if c.PodPidsLimit == nil || *c.PodPidsLimit < 0 {
		c.PodPidsLimit = new(int64(-1))
	}
	setPtr(&c.CPUCFSQuota, true)
	setPtr(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	set(&c.MaxOpenFiles, 1_000_000)
	set(&c.EvictionPressureTransitionPeriod, seconds(300))
	setPtr(&c.MergeDefaultEvictionSettings, false)
	setPtr(&c.FailSwapOn, true)
	setPtr(&c.FailCgroupV1, true)
	set(&c.MemoryReservationPolicy, v1beta1.NoneMemoryReservationPolicy)
	setPtr(&c.LocalStorageCapacityIsolation, true)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
}

func defaultImages(c *v1beta1.KubeletConfiguration) {
	setPtr(&c.RegistryPullQPS, 5)
	set(&c.RegistryBurst, 10)
	set(&c.ImageMinimumGCAge, seconds(120))
	setPtr(&c.ImageGCHighThresholdPercent, 85)
	setPtr(&c.ImageGCLowThresholdPercent, 80)
	parallel := c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls > 1
	setPtr(&c.SerializeImagePulls, !parallel)
}

func defaultRuntime(c *v1beta1.KubeletConfiguration) {
	set(&c.VolumeStatsAggPeriod, seconds(60))
	set(&c.RuntimeRequestTimeout, seconds(120))
	set(&c.HairpinMode, v1beta1.PromiscuousBridge)
	setPtr(&c.ResolverConfig, "/etc/resolv.conf")
	setPtr(&c.EnableControllerAttachDetach, true)
	setPtr(&c.MakeIPTablesUtilChains, true)
	setPtr(&c.IPTablesMasqueradeBit, 14)
	setPtr(&c.IPTablesDropBit, 15)
	set(&c.ContainerLogMaxSize, "10Mi")
	setPtr(&c.ContainerLogMaxFiles, 5)
	setPtr(&c.ContainerLogMaxWorkers, 1)
	setPtr(&c.ContainerLogMonitorInterval, seconds(10))
	set(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	set(&c.Logging.Format, "text")
	if c.Logging.FlushFrequency.Duration.Duration == 0 {
		c.Logging.FlushFrequency.Duration = seconds(5)
		c.Logging.FlushFrequency.SerializeAsString = true
	}
	setPtr(&c.SeccompDefault, false)
	set(&c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	set(&c.PodLogsDir, "/var/log/pods")
}

func defaultGated(c *v1beta1.KubeletConfiguration, g gates, v Version) {
	if g.on("KubeletCrashLoopBackOffMax", v) {
		setPtr(&c.CrashLoopBackOff.MaxContainerRestartPeriod, seconds(300))
	}
	if g.on("KubeletEnsureSecretPulledImages", v) {
		set(&c.ImagePullCredentialsVerificationPolicy, v1beta1.NeverVerifyPreloadedImages)
	}
}

// withoutConfigFile is what a kubelet starts from when it has no --config file:
// the defaults of its flags, which are older than those of the file.
func withoutConfigFile(g gates, v Version) *Config {
	c := &Config{}
	setDefaults(&c.KubeletConfiguration, g, v)
	c.Authentication.Anonymous.Enabled = new(true)
	c.Authentication.Webhook.Enabled = new(false)
	c.Authorization.Mode = v1beta1.KubeletAuthorizationModeAlwaysAllow
	c.ReadOnlyPort = 10255
	return c
}
