package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// manager owns, in managedFields, what this package writes.
const manager = "nodewarden-webhook-certs"

// cluster reads and writes the two objects by name: it needs no right to any
// other, nor to list them.
type cluster struct {
	secrets        coreclient.SecretInterface
	configurations admissionclient.ValidatingWebhookConfigurationInterface
	namespace      string
	secret         string
	configuration  string
	// creator owns a Secret that this process creates. Of several that create
	// it at once, all but the first are told of a conflict.
	creator string
}

func newCluster(config *rest.Config, o Options) (*cluster, error) {
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	admission, err := admissionclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(o.Secret, "/")
	return &cluster{
		secrets: core.Secrets(namespace), configurations: admission.ValidatingWebhookConfigurations(),
		namespace: namespace, secret: name, configuration: o.Configuration,
		creator: manager + "-" + rand.String(10),
	}, nil
}

// readSecret returns the Secret; nil if there is none.
func (c *cluster) readSecret(ctx context.Context) (*corev1.Secret, error) {
	s, err := c.secrets.Get(ctx, c.secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", c.namespace, c.secret, err)
	}
	return s, nil
}

// writeSecret writes data into the Secret as it was read, or creates it. Where
// somebody was faster, it says so and writes nothing.
func (c *cluster) writeSecret(ctx context.Context, read *corev1.Secret, data map[string][]byte) (*corev1.Secret, error) {
	body := map[string]any{"data": data}
	kind, by := types.MergePatchType, manager
	if read == nil {
		// Only this kind of creation names what it creates, so that the right to
		// create can be limited to that name.
		kind, by = types.ApplyPatchType, c.creator
		body["apiVersion"], body["kind"], body["type"] = "v1", "Secret", corev1.SecretTypeTLS
		body["metadata"] = map[string]any{"name": c.secret, "labels": map[string]string{"app.kubernetes.io/name": "nodewarden"}}
	} else {
		body["metadata"] = map[string]any{"uid": read.UID, "resourceVersion": read.ResourceVersion}
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	s, err := c.secrets.Patch(ctx, c.secret, kind, patch, metav1.PatchOptions{FieldManager: by})
	if err != nil {
		return nil, fmt.Errorf("write Secret %s/%s: %w", c.namespace, c.secret, err)
	}
	return s, nil
}

// readConfiguration returns the webhook configuration; nil if there is none.
func (c *cluster) readConfiguration(ctx context.Context) (*admissionv1.ValidatingWebhookConfiguration, error) {
	v, err := c.configurations.Get(ctx, c.configuration, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", c.configuration, err)
	}
	return v, nil
}

// announce gives bundle to every entry of the configuration as it was read,
// and says whether any had another.
func (c *cluster) announce(ctx context.Context, read *admissionv1.ValidatingWebhookConfiguration, bundle []byte) (bool, error) {
	var entries []map[string]any
	for i := range read.Webhooks {
		if !bytes.Equal(read.Webhooks[i].ClientConfig.CABundle, bundle) {
			entries = append(entries, map[string]any{"name": read.Webhooks[i].Name, "clientConfig": map[string]any{"caBundle": bundle}})
		}
	}
	if len(entries) == 0 {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": read.UID, "resourceVersion": read.ResourceVersion},
		"webhooks": entries,
	})
	if err != nil {
		return false, err
	}
	_, err = c.configurations.Patch(ctx, c.configuration, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return false, fmt.Errorf("write caBundle of ValidatingWebhookConfiguration %s: %w", c.configuration, err)
	}
	return true, nil
}

// The two streams of changes. Each begins with the object as it is.

func (c *cluster) watchSecret(ctx context.Context) (watch.Interface, error) {
	return c.secrets.Watch(ctx, named(c.secret))
}

func (c *cluster) watchConfiguration(ctx context.Context) (watch.Interface, error) {
	return c.configurations.Watch(ctx, named(c.configuration))
}

// watchFor bounds a watch, in seconds: a connection that died without a word is
// not believed for longer.
const watchFor int64 = 300

func named(name string) metav1.ListOptions {
	bound := watchFor
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), TimeoutSeconds: &bound}
}

// overtaken says whether a write failed because somebody else was faster.
func overtaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
