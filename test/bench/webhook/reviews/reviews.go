// Package reviews makes admission reviews of the size that big clusters send:
// a Node of about 40 KB with the images, labels, conditions and managedFields
// that kubelets, cloud controllers and monitoring agents leave on it.
//
// Everything in it is made up; only the shape is that of a busy node.
package reviews

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Start is when the nodes of this package registered.
var Start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// Heartbeat is when the kubelet of Node last reported.
var Heartbeat = Start.Add(50 * time.Hour)

// Node returns a Ready node of about 40 KB.
func Node(name string) *corev1.Node {
	n := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("6f1f6c1e-0d0c-4c42-9f0e-" + fmt.Sprintf("%012d", len(name))), ResourceVersion: "184467440",
			CreationTimestamp: metav1.NewTime(Start), Labels: labels(name), Annotations: annotations(name),
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.42.7.0/24", PodCIDRs: []string{"10.42.7.0/24"}, ProviderID: "cloud://region-1/zone-b/" + name},
		Status: corev1.NodeStatus{
			Capacity: resources("63"), Allocatable: resources("62"), Conditions: conditions(), Images: images(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "10.1.7.23"}, {Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalDNS, Address: name + ".internal.example.org"},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: "8a0c2f31c2f34b0fa4b2f3c94e05f1aa", KernelVersion: "6.12.8-cloud", OSImage: "Linux", KubeletVersion: "v1.37.2",
				ContainerRuntimeVersion: "containerd://2.2.1", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for i := range 24 {
		volume := fmt.Sprintf("kubernetes.io/csi/ebs.csi.example.org^vol-%017d", i)
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, corev1.UniqueVolumeName(volume))
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(volume), DevicePath: ""})
	}
	n.ManagedFields = managed(n)
	return n
}

func labels(name string) map[string]string {
	m := map[string]string{
		"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": "region-1b", "node.kubernetes.io/instance-type": "m7.16xlarge",
	}
	for i := range 34 {
		m[fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.FEATURE%02d", i)] = "true"
	}
	return m
}

func annotations(name string) map[string]string {
	m := map[string]string{
		"csi.volume.kubernetes.io/nodeid":                        `{"ebs.csi.example.org":"i-0123456789abcdef0","efs.csi.example.org":"i-0123456789abcdef0"}`,
		"volumes.kubernetes.io/controller-managed-attach-detach": "true", "alpha.kubernetes.io/provided-node-ip": "10.1.7.23",
	}
	for i := range 20 {
		m[fmt.Sprintf("cluster.example.org/pool-setting-%02d", i)] = strings.Repeat("v", 100) + name
	}
	return m
}

func resources(cpu string) corev1.ResourceList {
	return corev1.ResourceList{
		"cpu": resource.MustParse(cpu), "memory": resource.MustParse("257817420Ki"), "pods": resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("498345345Ki"), "hugepages-1Gi": resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("0"),
		"example.org/gpu": resource.MustParse("8"), "example.org/nic": resource.MustParse("16"),
	}
}

func conditions() []corev1.NodeCondition {
	add := func(typ, status, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: corev1.NodeConditionType(typ), Status: corev1.ConditionStatus(status), Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(Heartbeat), LastTransitionTime: metav1.NewTime(Start),
		}
	}
	return []corev1.NodeCondition{
		add("NetworkUnavailable", "False", "RouteCreated", "the network agent set up the routes of this node"),
		add("KernelDeadlock", "False", "KernelHasNoDeadlock", "kernel has no deadlock"),
		add("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly", "Filesystem is not read-only"),
		add("FrequentContainerdRestart", "False", "NoFrequentContainerdRestart", "containerd is functioning properly"),
		add("CorruptDockerOverlay2", "False", "NoCorruptDockerOverlay2", "docker overlay2 is functioning properly"),
		add("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		add("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		add("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		add("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
	}
}

func images() []corev1.ContainerImage {
	list := make([]corev1.ContainerImage, 0, 50)
	for i := range 50 {
		name := fmt.Sprintf("registry.example.org/platform/team-%02d/service-with-a-long-name-%02d", i%7, i)
		list = append(list, corev1.ContainerImage{
			Names:     []string{name + "@sha256:" + strings.Repeat(fmt.Sprintf("%02x", i), 32), name + ":v1.2." + fmt.Sprint(i), "mirror.region-1." + name + "@sha256:" + strings.Repeat(fmt.Sprintf("%02x", i), 32)},
			SizeBytes: int64(31415926 + i),
		})
	}
	return list
}

// managed returns entries of the field managers that a node of a cloud
// provider has.
func managed(n *corev1.Node) []metav1.ManagedFieldsEntry {
	entry := func(manager, subresource string, at time.Time, fields string) metav1.ManagedFieldsEntry {
		t := metav1.NewTime(at)
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &t,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource,
		}
	}
	var owned, reported, watched []string
	for l := range n.Labels {
		owned = append(owned, fmt.Sprintf("%q:{}", "f:"+l))
	}
	for _, c := range n.Status.Conditions {
		key := fmt.Sprintf("k:{\"type\":%q}", c.Type)
		if strings.HasSuffix(string(c.Type), "Pressure") || c.Type == corev1.NodeReady {
			reported = append(reported, fmt.Sprintf("%q:{\"f:lastHeartbeatTime\":{},\"f:lastTransitionTime\":{},\"f:message\":{},\"f:reason\":{},\"f:status\":{}}", key))
		} else {
			watched = append(watched, fmt.Sprintf("%q:{\".\":{},\"f:lastHeartbeatTime\":{},\"f:lastTransitionTime\":{},\"f:message\":{},\"f:reason\":{},\"f:status\":{},\"f:type\":{}}", key))
		}
	}
	under := func(path string, fields []string) string {
		return `{"f:` + path + `":{` + strings.Join(fields, ",") + `}}`
	}
	return []metav1.ManagedFieldsEntry{
		entry("kubelet", "", Start, `{"f:metadata":`+under("labels", owned)+`}`),
		entry("kube-controller-manager", "", Start.Add(time.Minute), `{"f:metadata":{"f:annotations":{"f:node.alpha.kubernetes.io/ttl":{}}},"f:spec":{"f:podCIDR":{},"f:podCIDRs":{".":{},"v:\"10.42.7.0/24\"":{}},"f:taints":{}}}`),
		entry("node-problem-detector", "status", Heartbeat.Add(-time.Minute), `{"f:status":`+under("conditions", watched)+`}`),
		entry("cloud-controller-manager", "status", Start.Add(time.Hour), `{"f:status":{"f:addresses":{}}}`),
		entry("kubelet", "status", Heartbeat, `{"f:status":{"f:allocatable":{"f:ephemeral-storage":{},"f:memory":{}},"f:conditions":{`+strings.Join(reported, ",")+`},"f:images":{},"f:volumesInUse":{}}}`),
	}
}

// Detect returns n as a detector records its failure at that time: Ready is
// Unknown, and managedFields already name the write.
func Detect(n *corev1.Node, at time.Time) *corev1.Node {
	after := n.DeepCopy()
	for i := range after.Status.Conditions {
		if c := &after.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "OutOfBandProbeFailed", "three probes over the management network failed"
			c.LastTransitionTime = metav1.NewTime(at)
		}
	}
	stamp := metav1.NewTime(at)
	after.ManagedFields = append(after.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "detector", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &stamp, FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{}}}}}`),
	})
	return after
}

// Detector is the user of Update.
var Detector = authenticationv1.UserInfo{
	Username: "system:serviceaccount:monitoring:detector", UID: "f3c1",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:monitoring", "system:authenticated"},
}

// Update returns the review of a write to nodes/status.
func Update(before, after *corev1.Node, by authenticationv1.UserInfo) *admissionv1.AdmissionReview {
	r := review(after, by)
	r.Request.Operation, r.Request.SubResource, r.Request.RequestSubResource = admissionv1.Update, "status", "status"
	r.Request.OldObject = raw(before)
	r.Request.Options.Raw = []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)
	return r
}

// Create returns the review of the creation of a Node.
func Create(n *corev1.Node, by authenticationv1.UserInfo) *admissionv1.AdmissionReview {
	r := review(n, by)
	r.Request.Operation = admissionv1.Create
	return r
}

func review(n *corev1.Node, by authenticationv1.UserInfo) *admissionv1.AdmissionReview {
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Node"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}
	dryRun := false
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: n.Name, UserInfo: by, Object: raw(n), DryRun: &dryRun,
		},
	}
}

func raw(n *corev1.Node) runtime.RawExtension { return runtime.RawExtension{Raw: Body(n)} }

// Body is v as JSON, as an API server would send it.
func Body(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package always encode
	}
	return b
}
