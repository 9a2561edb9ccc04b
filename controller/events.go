package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

// component is what events of the node lifecycle have always named; consumers
// filter by it.
const component = "node-controller"

// Reasons of the events, as upstream names them.
const (
	reasonNotReady   = "NodeNotReady"
	reasonRegistered = "RegisteredNode"
	reasonRemoving   = "RemovingNode"
)

// backlog is how many events may wait; more are dropped, as every recorder does
// when nobody could read them any more.
const backlog = 50_000

// herald creates events. The one that announces a failure is created before
// anything else happens, the rest when there is time, one after the other.
type herald struct {
	client client.Writer
	clock  clock.WithTicker

	mu     sync.Mutex
	later  []*corev1.Event
	wakeup chan struct{}
}

func newHerald(c client.Writer, k clock.WithTicker) *herald {
	return &herald{client: c, clock: k, wakeup: make(chan struct{}, 1)}
}

// nodeNotReady announces the transition at since, once: whoever comes second
// finds the event there.
func (h *herald) nodeNotReady(ctx context.Context, name string, uid types.UID, since time.Time) error {
	e := h.aboutNode(name, uid, reasonNotReady, fmt.Sprintf("Node %s status is now: NodeNotReady", name))
	e.Name = lifecycle.EventName(name, uid, since)
	if err := h.create(ctx, e); err != nil {
		return fmt.Errorf("announce that node %s is not ready: %w", name, err)
	}
	return nil
}

func (h *herald) registered(name string, uid types.UID) {
	h.tell(h.aboutNode(name, uid, reasonRegistered, fmt.Sprintf("Node %s event: Registered Node %s in Controller", name, name)))
}

func (h *herald) removing(name string, uid types.UID) {
	h.tell(h.aboutNode(name, uid, reasonRemoving, fmt.Sprintf("Node %s event: Removing Node %s from Controller", name, name)))
}

// podNotReady tells of a pod that was made NotReady at the given time.
func (h *herald) podNotReady(p podRef, at time.Time) {
	e := h.event(corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: p.namespace, Name: p.name, UID: p.uid, ResourceVersion: p.resourceVersion,
	}, corev1.EventTypeWarning, reasonNotReady, "Node is not ready")
	e.Name = lifecycle.EventName(p.name, p.uid, at)
	h.tell(e)
}

func (h *herald) aboutNode(name string, uid types.UID, reason, message string) *corev1.Event {
	return h.event(corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: uid}, corev1.EventTypeNormal, reason, message)
}

func (h *herald) event(about corev1.ObjectReference, kind, reason, message string) *corev1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	now := h.clock.Now()
	at := metav1.NewTime(now)
	// Two of a kind may come within a second, such as from two starts.
	occasion := types.UID(fmt.Sprintf("%s/%s/%d", about.UID, reason, now.UnixNano()))
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: lifecycle.EventName(about.Name, occasion, now)},
		InvolvedObject:      about,
		Type:                kind,
		Reason:              reason,
		Message:             message,
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
	}
}

func (h *herald) tell(e *corev1.Event) {
	h.mu.Lock()
	if len(h.later) < backlog {
		h.later = append(h.later, e)
	}
	h.mu.Unlock()
	select {
	case h.wakeup <- struct{}{}:
	default:
	}
}

func (h *herald) next() *corev1.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.later) == 0 {
		h.later = nil // lets go of what a storm had grown
		return nil
	}
	e := h.later[0]
	h.later = h.later[1:]
	return e
}

// Start creates the events that can wait.
func (h *herald) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.wakeup:
		}
		for e := h.next(); e != nil && ctx.Err() == nil; e = h.next() {
			h.deliver(ctx, e)
		}
	}
}

// deliver tries a few times. An event is a courtesy: one that the API server
// refuses is dropped.
func (h *herald) deliver(ctx context.Context, e *corev1.Event) {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		err := h.create(ctx, e)
		if err == nil || ctx.Err() != nil {
			return
		}
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) || wait > 10*time.Second {
			log.FromContext(ctx).Error(err, "dropped an event", "about", e.InvolvedObject.Name, "reason", e.Reason)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-h.clock.After(wait):
		}
	}
}

func (h *herald) create(ctx context.Context, e *corev1.Event) error {
	return client.IgnoreAlreadyExists(h.client.Create(ctx, e))
}
