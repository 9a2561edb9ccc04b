package kubeletcfg

import "testing"

// verify is the net below the splicing: nothing is known that falls into it.
func TestVerifyCatchesAnEditThatReachesFurther(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	before := head + "featureGates: {A: true}\nmaxPods: 5\n"
	change := Change{Path: []string{"featureGates", "B"}, Value: "true"}
	for name, c := range map[string]struct {
		after string
		fine  bool
	}{
		"the change alone":           {head + "featureGates: {B: true, A: true}\nmaxPods: 5\n", true},
		"another value with it":      {head + "featureGates: {B: true, A: true}\nmaxPods: 6\n", false},
		"another gate lost":          {head + "featureGates: {B: true}\nmaxPods: 5\n", false},
		"another gate turned":        {head + "featureGates: {B: true, A: false}\nmaxPods: 5\n", false},
		"a field lost":               {head + "featureGates: {B: true, A: true}\n", false},
		"the wrong value":            {head + "featureGates: {B: false, A: true}\nmaxPods: 5\n", false},
		"no change at all":           {before, false},
		"a document more":            {head + "featureGates: {B: true, A: true}\nmaxPods: 5\n---\na: b\n", false},
		"something that is not YAML": {head + "featureGates: {B: true, A: true\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			docs, err := documents([]byte(before))
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(docs, []byte(c.after), change); (err == nil) != c.fine {
				t.Errorf("error %v", err)
			}
		})
	}
}
