package certs

import (
	"context"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// TestOfSeveralWritesTheFirstCounts has two replicas decide on the same state,
// which is how every race between them begins.
func TestOfSeveralWritesTheFirstCounts(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := Options{Secret: "default/race", Configuration: "race"}
	var replicas []*cluster
	for range 8 {
		c, err := newCluster(cp.Admin(), o)
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, c)
	}

	race := func(write func(i int, c *cluster) error) (won int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, c := range replicas {
			all.Go(func() {
				err := write(i, c)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case !overtaken(err):
					t.Errorf("a replica that was slower hears %v", err)
				}
			})
		}
		all.Wait()
		return won
	}
	data := make([]map[string][]byte, len(replicas))
	for i := range data {
		data[i] = fresh(t, usual, noon)
	}

	t.Run("where there was no Secret", func(t *testing.T) {
		if won := race(func(i int, c *cluster) error { _, err := c.writeSecret(ctx, nil, data[i]); return err }); won != 1 {
			t.Errorf("%d replicas created it", won)
		}
	})
	t.Run("where there was one", func(t *testing.T) {
		read, err := replicas[0].readSecret(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if before := read.Data[bundleKey]; len(decode(before)) != 1 {
			t.Fatalf("the Secret holds %q", before)
		}
		if won := race(func(i int, c *cluster) error {
			// One that would change nothing is no write, and cannot be overtaken.
			_, err := c.writeSecret(ctx, read, fresh(t, usual, noon))
			return err
		}); won != 1 {
			t.Errorf("%d replicas changed it", won)
		}
	})
	t.Run("in a configuration", func(t *testing.T) {
		url, none, v := "https://127.0.0.1/validate", admissionv1.SideEffectClassNone, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "race"}}
		v.Webhooks = []admissionv1.ValidatingWebhook{{Name: "a.b.c", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}}
		if _, err := replicas[0].configurations.Create(ctx, v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		read, err := replicas[0].readConfiguration(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if won := race(func(i int, c *cluster) error { _, err := c.announce(ctx, read, data[i][bundleKey]); return err }); won != 1 {
			t.Errorf("%d replicas announced theirs", won)
		}
	})
	t.Run("and nothing is made anew that was deleted meanwhile", func(t *testing.T) {
		read, err := replicas[0].readSecret(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := replicas[0].secrets.Delete(ctx, "race", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := replicas[1].writeSecret(ctx, read, data[1]); err == nil {
			t.Error("written into a Secret that is gone")
		}
		if s, err := replicas[0].readSecret(ctx); err != nil || s != nil {
			t.Errorf("%v %v", s, err)
		}
	})
}
