package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nodewarden/nodewarden/webhook/config"
	"github.com/nodewarden/nodewarden/webhook/freshness"
)

// nodeFlags say whether and how to watch nodes.
type nodeFlags struct {
	on         bool
	kubeconfig string
	stalled    config.Stalled
}

func (f *nodeFlags) add(set *pflag.FlagSet) {
	set.BoolVar(&f.on, "watch-nodes", true, "Watch nodes for the metrics about stalled writers, where --kubeconfig or the pod's service account leads to an API server. Needs list and watch of nodes. Reviews do not depend on it.")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "Path of a kubeconfig for --watch-nodes and --self-managed-cert-secret. Without one, the pod's service account is used; outside of a pod nothing is watched.")
}

// watch returns the watch of nodes, or nil where there is none to keep.
func (f *nodeFlags) watch(r prometheus.Registerer) (*freshness.Watch, error) {
	if !f.on {
		return nil, nil
	}
	cfg, err := f.apiServer()
	if err != nil {
		return nil, fmt.Errorf("watch nodes (turn it off with --watch-nodes=false): %w", err)
	}
	if cfg == nil {
		klog.Background().Info("no metrics about stalled writers: neither --kubeconfig nor a service account leads to an API server")
		return nil, nil
	}
	o := freshness.DefaultOptions()
	o.StalledAfter = time.Duration(*f.stalled.AfterPeriods) * f.stalled.StatusReportPeriod.Duration
	o.MaxNamedNodes = *f.stalled.MaxNamedNodes
	return freshness.New(freshness.Parts{
		Config: rest.AddUserAgent(cfg, name), Options: o, Clock: clock.RealClock{}, Log: klog.Background(),
	}, r)
}

// apiServer is the way to the API server; nil where nobody gave one. A pod
// without a service account token is no fault: it serves reviews all the same.
func (f *nodeFlags) apiServer() (*rest.Config, error) {
	if f.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	}
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return cfg, err
}
