package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// pageSize is how many nodes are decoded at once where the API server cannot
// stream them. A busy node has 40 KB.
const pageSize = 50

// Parts are what a Watch is made of.
type Parts struct {
	// Config leads to the API server, as somebody who may list and watch
	// nodes.
	Config  *rest.Config
	Options Options
	Clock   clock.WithTicker
	Log     logr.Logger
}

// Watch keeps the figures about nodes.
type Watch struct {
	options    Options
	clock      clock.WithTicker
	log        logr.Logger
	ear        *ear
	picture    *picture
	client     rest.Interface
	parameters runtime.ParameterCodec
	reflector  *cache.Reflector
	born       time.Time
}

// New returns a Watch that does not listen until Run. Its metrics are
// registered with r.
func New(p Parts, r prometheus.Registerer) (*Watch, error) {
	if errs := p.Options.Validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	w := &Watch{options: p.Options, clock: p.Clock, log: p.Log, ear: &ear{now: p.Clock.Now}, born: p.Clock.Now()}
	w.picture = newPicture(w.ear)
	if err := w.connect(p.Config); err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	lw := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
	w.reflector = cache.NewReflectorWithOptions(lw, &corev1.Node{}, w.picture, cache.ReflectorOptions{Name: "freshness"})
	if err := r.Register(collector{picture: w.picture, options: p.Options}); err != nil {
		return nil, fmt.Errorf("metrics about nodes: %w", err)
	}
	return w, nil
}

// connect makes a client that knows the core types and no others: their
// tables alone would take as much memory as the nodes.
func (w *Watch) connect(cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	c := rest.CopyConfig(cfg)
	c.Wrap(w.ear.wrap)
	c.APIPath, c.GroupVersion = "/api", &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.AcceptContentTypes, c.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	w.parameters = runtime.NewParameterCodec(scheme)
	var err error
	w.client, err = rest.RESTClientFor(c)
	return err
}

// list returns all nodes, trimmed, page by page: the way where the API server
// cannot stream its answer. It always asks for the present.
func (w *Watch) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	w.picture.asking()
	all := &corev1.NodeList{}
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page := &corev1.NodeList{}
		if err := w.client.Get().Resource("nodes").VersionedParams(&o, w.parameters).Do(ctx).Into(page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			all.Items = append(all.Items, *trim(&page.Items[i]))
		}
		if o.Continue = page.Continue; o.Continue == "" {
			all.ResourceVersion = page.ResourceVersion
			return all, nil
		}
	}
}

// watch opens a stream of changes, which may begin with all nodes.
func (w *Watch) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		w.picture.asking()
	}
	o.Watch = true
	return w.client.Get().Resource("nodes").VersionedParams(&o, w.parameters).Watch(ctx)
}

// Run keeps the figures current until ctx ends. Whatever the API server does
// is tried again; Run gives up for nothing else.
func (w *Watch) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, w.log)
	w.log.Info("watching nodes for stalled writers", "stalledAfter", w.options.StalledAfter.String())
	for ctx.Err() == nil {
		w.listen(ctx)
	}
	return nil
}

// listen returns when the API server has fallen silent or ctx ends.
func (w *Watch) listen(ctx context.Context) {
	listening, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.reflector.RunWithContext(listening)
	}()
	w.awaitSilence(ctx)
	stop()
	// A reflector that waits before its next attempt hears of the end only
	// afterwards. Nobody who stops the process should have to wait for that.
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

func (w *Watch) awaitSilence(ctx context.Context) {
	begun := w.clock.Now()
	ticker := w.clock.NewTicker(w.options.Silence / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if w.ear.silence(begun) > w.options.Silence {
				w.log.Info("nothing heard of nodes: listing them anew", "for", w.options.Silence.String())
				return
			}
		}
	}
}

// Ready says why this process should wait before it takes over from another:
// nodes are not listed yet. It is a matter of seconds and never more than
// Options.Patience: a webhook whose way to the API server is blocked must
// still be given its reviews. After that the metrics tell.
func (w *Watch) Ready() error {
	if w.picture.synced() || w.clock.Since(w.born) >= w.options.Patience {
		return nil
	}
	return errors.New("nodes are not listed yet")
}
