package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// reporting is how a kubelet tells that its node is alive: the flags that
// hollow and real kubelets share.
type reporting struct {
	statusEvery  time.Duration
	reportEvery  time.Duration
	leaseSeconds int
	noLease      bool
}

// flagSet holds the shared flags, klog's among them.
func (r *reporting) flagSet(role string) *flag.FlagSet {
	fs := flag.NewFlagSet(role, flag.ContinueOnError)
	klog.InitFlags(fs)
	fs.DurationVar(&r.statusEvery, "status-every", 10*time.Second, "nodeStatusUpdateFrequency: how often to look for changes to report")
	fs.DurationVar(&r.reportEvery, "report-every", 5*time.Minute, "nodeStatusReportFrequency: how often to report without a change")
	fs.IntVar(&r.leaseSeconds, "lease-seconds", 40, "nodeLeaseDurationSeconds; the Lease is renewed four times as often")
	fs.BoolVar(&r.noLease, "no-lease", false, "for tests only: never read or write a Lease, as a kubelet with its Lease switched off would")
	return fs
}

func (r reporting) validate() error {
	var errs []error
	for flag, d := range map[string]time.Duration{"status-every": r.statusEvery, "report-every": r.reportEvery} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s=%s: must be longer than 0", flag, d))
		}
	}
	if r.leaseSeconds <= 0 {
		errs = append(errs, fmt.Errorf("--lease-seconds=%d: must be more than 0; use --no-lease for a kubelet without one", r.leaseSeconds))
	}
	return errors.Join(errs...)
}

func (r reporting) apply(c *kubeletconfig.KubeletConfiguration) {
	c.NodeStatusUpdateFrequency.Duration = r.statusEvery
	c.NodeStatusReportFrequency.Duration = r.reportEvery
	c.NodeLeaseDurationSeconds = int32(r.leaseSeconds)
}

// clients are a kubelet's two: one for everything, and one for signs of life
// that no rate limit and no slow request may hold up.
type clients struct {
	main  *kubernetes.Clientset
	beats *kubernetes.Clientset
}

func (r reporting) clients(config *rest.Config, node string) (clients, error) {
	c := rest.CopyConfig(config)
	c.UserAgent, c.QPS, c.Burst = "kubelet/"+node, 50, 100
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	main, err := kubernetes.NewForConfig(c)
	if err != nil {
		return clients{}, err
	}
	c = rest.CopyConfig(c)
	c.QPS, c.Timeout = -1, r.statusEvery
	beats, err := kubernetes.NewForConfig(c)
	return clients{main: main, beats: beats}, err
}

// heartbeats is what the kubelet gets as its client for signs of life.
func (r reporting) heartbeats(c clients) kubernetes.Interface {
	if r.noLease {
		return leaseless{c.beats}
	}
	return c.beats
}
