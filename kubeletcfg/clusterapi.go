package kubeletcfg

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// FromClusterAPI: what the types of Cluster API 1.14.2 say.
const FromClusterAPI Basis = "Cluster API 1.14.2"

// capiObject is the part of a KubeadmControlPlane or KubeadmConfigTemplate
// that decides whether a kubelet patch reaches kubeadm.
type capiObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		KubeadmConfigSpec kubeadmConfigSpec `json:"kubeadmConfigSpec"`
		Template          struct {
			Spec kubeadmConfigSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type kubeadmConfigSpec struct {
	Files []struct {
		Path        string `json:"path"`
		Owner       string `json:"owner"`
		Permissions string `json:"permissions"`
	} `json:"files"`
	InitConfiguration patched `json:"initConfiguration"`
	JoinConfiguration patched `json:"joinConfiguration"`
}

type patched struct {
	Patches struct {
		Directory string `json:"directory"`
	} `json:"patches"`
}

// LintClusterAPI looks at the KubeadmControlPlanes and KubeadmConfigTemplates
// of a manifest: does every kubelet patch that they put on a machine get read
// there? Other objects are passed over; a file without any of Cluster API is an
// error, for it is not the one that was meant.
func LintClusterAPI(f File) ([]Finding, error) {
	if f.Err != nil {
		return nil, f.Err
	}
	var found []Finding
	looked := false
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.Data)))
	for line := 1; ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) && !looked {
			return nil, fmt.Errorf("%s: holds no object of Cluster API: want documents such as a KubeadmControlPlane or a KubeadmConfigTemplate, none of them inside of a List", f.Name)
		}
		if errors.Is(err, io.EOF) {
			sortFindings(found)
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		var o capiObject
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return nil, fmt.Errorf("%s: document at line %d: %w", f.Name, line, err)
		}
		looked = looked || o.ofClusterAPI()
		found = append(found, o.lint(f.Name, linesOf(doc), line-1)...)
		line += bytes.Count(doc, []byte("\n")) + 1
	}
}

// ofClusterAPI: do its groups hold the object?
func (o capiObject) ofClusterAPI() bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return group == "cluster.x-k8s.io" || strings.HasSuffix(group, ".cluster.x-k8s.io")
}

// capiCheck is one object on its way through the checks.
type capiCheck struct {
	file   string
	object capiObject
	spec   kubeadmConfigSpec
	at     fieldPath // where spec is in the object
	phases []string  // the kubeadm commands that this machine will see
	where  *lines
	offset int // lines of the file before the object
	found  []Finding
}

// lint checks one object; its first line is line offset+1 of the file.
func (o capiObject) lint(file string, where *lines, offset int) []Finding {
	c := capiCheck{file: file, object: o, where: where, offset: offset}
	switch o.Kind {
	case "KubeadmControlPlane":
		c.spec, c.at = o.Spec.KubeadmConfigSpec, fieldPath{"spec", "kubeadmConfigSpec"}
		c.phases = []string{"initConfiguration", "joinConfiguration"}
	case "KubeadmConfigTemplate":
		c.spec, c.at = o.Spec.Template.Spec, fieldPath{"spec", "template", "spec"}
		c.phases = []string{"joinConfiguration"} // workers only join
	default:
		return nil
	}
	seen := map[string]bool{}
	for _, entry := range c.spec.Files {
		if seen[entry.Path] {
			c.report(IgnoredSilently, "%s is there twice, and the last one counts; give each file its own path", entry.Path)
		}
		seen[entry.Path] = true
		c.patchFile(entry.Path)
	}
	return c.found
}

func (c *capiCheck) report(outcome Outcome, format string, args ...any) {
	p := c.at.child("files")
	c.found = append(c.found, Finding{
		Outcome: outcome, Path: p.String(), File: c.file, Line: c.where.of(p) + c.offset,
		Message: c.object.Kind + " " + c.object.Metadata.Name + ": " + fmt.Sprintf(format, args...), Basis: FromClusterAPI,
	})
}

// directory is where kubeadm looks for patches in a phase.
func (c *capiCheck) directory(phase string) string {
	dir := c.spec.JoinConfiguration.Patches.Directory
	if phase == "initConfiguration" {
		dir = c.spec.InitConfiguration.Patches.Directory
	}
	if dir == "" {
		return ""
	}
	return path.Clean(dir)
}

// patchFile checks that a file which looks like a kubelet patch is read in
// every phase.
func (c *capiCheck) patchFile(name string) {
	dir, base := path.Dir(name), path.Base(name)
	if !readsPatches(base) {
		c.misnamed(name, dir, base)
		return
	}
	for _, phase := range c.phases {
		switch got := c.directory(phase); got {
		case dir:
		case "":
			c.report(IgnoredSilently, "%s is not read: set %s.patches.directory to %s", name, c.at.child(phase), dir)
		default:
			c.report(IgnoredSilently, "%s is not read: %s.patches.directory is %s", name, c.at.child(phase), got)
		}
	}
}

// misnamed: a file in a patch directory that kubeadm takes for no target.
func (c *capiCheck) misnamed(name, dir, base string) {
	for _, phase := range c.phases {
		if c.directory(phase) != dir {
			continue
		}
		if outcome, why := judgePatch(File{Name: base, Data: []byte("a: b")}); outcome != Applied {
			c.report(outcome, "%s: %s", name, why)
			return
		}
	}
}
