package kubeletcfg

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// FromKubeadm: compared with the patch code of kubeadm 1.37.2.
const FromKubeadm Basis = "kubeadm 1.37.2"

// kubeadmTargets are what kubeadm can patch, longest name first where one
// begins another.
var kubeadmTargets = []string{
	"kubeletconfiguration", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
	"kubeproxydaemonset", "corednsdeployment", "etcd",
}

// patchName is target, suffix, +type; what follows, kubeadm does not look at.
var patchName = regexp.MustCompile(`^(` + strings.Join(kubeadmTargets, "|") + `)([^.+\n]*)(\+)?(json|merge|strategic)?`)

// LintKubeadmPatches says which files of a --patches directory kubeadm reads,
// which it skips with a line in its output, and on which it gives up. Names
// are relative to the directory.
func LintKubeadmPatches(dir string, files []File) []Finding {
	var found []Finding
	for _, f := range files {
		name := path.Join(dir, f.Name)
		outcome, message := judgePatch(f)
		if outcome != Applied {
			found = append(found, Finding{Outcome: outcome, File: name, Message: message, Basis: FromKubeadm})
		}
	}
	sortFindings(found)
	return found
}

func judgePatch(f File) (Outcome, string) {
	name := path.Base(f.Name)
	if ext := path.Ext(name); ext != ".yaml" && ext != ".json" || len(name) == len(ext) {
		return IgnoredWithWarning, "kubeadm skips it: the name must end in .yaml or .json"
	}
	m := patchName.FindStringSubmatch(name)
	switch {
	case m == nil:
		return IgnoredWithWarning, fmt.Sprintf("kubeadm skips it: the name must begin with one of %s%s", strings.Join(kubeadmTargets, ", "), nearTarget(name))
	case m[3] != "" && m[4] == "":
		return WouldNotStart, "kubeadm stops here: after the + in the name comes json, merge or strategic"
	case f.Err != nil:
		return WouldNotStart, fmt.Sprintf("kubeadm stops here: the file cannot be read: %v", f.Err)
	case len(f.Data) == 0:
		return IgnoredWithWarning, "kubeadm skips it: the file is empty"
	}
	if _, err := yaml.YAMLToJSON(f.Data); err != nil && !bytes.Contains(f.Data, []byte("\n---")) {
		return WouldNotStart, "kubeadm stops here: " + firstLine(err)
	}
	return Applied, ""
}

// nearTarget guesses what a name was meant to be.
func nearTarget(name string) string {
	for _, target := range kubeadmTargets {
		if strings.HasPrefix(target, strings.ToLower(letters.FindString(name))) {
			return ", for example " + target + "0+merge.yaml"
		}
	}
	return ""
}

var letters = regexp.MustCompile(`^[A-Za-z-]{4,}`)

// readsPatches: would kubeadm take a file of this name for the kubelet?
func readsPatches(name string) bool {
	m := patchName.FindStringSubmatch(name)
	return m != nil && m[1] == "kubeletconfiguration" && slices.Contains([]string{".yaml", ".json"}, path.Ext(name))
}
