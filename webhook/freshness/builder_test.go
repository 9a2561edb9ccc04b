package freshness

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/test/nodes"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// at is an instant some minutes from noon.
func at(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }

// built is a node under construction.
type built struct{ *corev1.Node }

// heard is a node whose Ready is True since an hour before noon and has this
// heartbeat by its kubelet's clock; managedFields do not tell.
func heard(name string, heartbeat time.Time) built {
	n := nodes.Reporting(name, at(-60), heartbeat).Node()
	n.UID = types.UID("uid-of-" + name)
	return built{n}
}

// by adds that somebody wrote Ready, at an instant of the API server's clock.
func (b built) by(manager string, when time.Time) built {
	b.ManagedFields = append(b.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: "status", Time: &metav1.Time{Time: when}, FieldsV1: ownsReady,
	})
	return b
}

// recorded sets Ready to a status with this transition time.
func (b built) recorded(s corev1.ConditionStatus, transition time.Time) built {
	r := nodes.Ready(b.Node)
	r.Status, r.LastTransitionTime = s, metav1.NewTime(transition)
	return b
}

// dated sets both times of Ready.
func (b built) dated(heartbeat, transition time.Time) built {
	r := nodes.Ready(b.Node)
	r.LastHeartbeatTime, r.LastTransitionTime = metav1.NewTime(heartbeat), metav1.NewTime(transition)
	return b
}

func (b built) uid(uid string) built {
	b.UID = types.UID(uid)
	return b
}

// unreported is a node without a Ready condition.
func unreported(name string) built {
	b := heard(name, noon)
	b.Status.Conditions = b.Status.Conditions[:len(b.Status.Conditions)-1]
	return b
}
