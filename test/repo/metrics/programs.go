package main

import (
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/controller"
	"github.com/nodewarden/nodewarden/controller/zone"
	"github.com/nodewarden/nodewarden/webhook"
	"github.com/nodewarden/nodewarden/webhook/certs"
	"github.com/nodewarden/nodewarden/webhook/freshness"
)

// part is a part of a program that has metrics of its own.
type part struct {
	// title heads its list.
	title string
	// register does what the program does at its start.
	register func(prometheus.Registerer) error
}

// programs are the lists of the page, in order. A new part of a program that
// has metrics gets a line here.
var programs = []part{
	{"nodewarden-webhook: reviews", reviews},
	{"nodewarden-webhook: nodes", nodes},
	{"nodewarden-webhook: self-managed certificates", certificates},
	{"nodewarden-controller", lifecycle},
}

func reviews(r prometheus.Registerer) error {
	webhook.NewMetrics(r, webhook.DefaultOptions(contract.Policy{}))
	return nil
}

func nodes(r prometheus.Registerer) error {
	_, err := freshness.New(freshness.Parts{
		Config: &rest.Config{}, Options: freshness.DefaultOptions(), Clock: clock.RealClock{}, Log: logr.Discard(),
	}, r)
	return err
}

func certificates(r prometheus.Registerer) error {
	o := certs.DefaultOptions()
	o.Secret, o.Configuration, o.Names = "namespace/name", "name", []string{"name"}
	_, err := certs.New(o, &rest.Config{}, r, logr.Discard())
	return err
}

func lifecycle(r prometheus.Registerer) error {
	m := controller.NewMetrics(r)
	m.CacheAge(func() time.Duration { return 0 })
	m.Zones(func() []zone.Figure { return []zone.Figure{{}} })
	return nil
}
