package policy

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/nodewarden/nodewarden/contract"
)

// File is one rendered file.
type File struct {
	// Name is relative to the folder that all files of a form belong in.
	Name string
	Text []byte
}

// The names of the rendered files.
const (
	WebhookFile         = "nodewarden-webhook.yaml"
	PolicyFile          = "nodewarden-policy.yaml"
	AdmissionConfigFile = "admission-configuration.yaml"
	// StaticManifests is the folder of the static form that the API server reads.
	StaticManifests = "manifests"
)

// RenderWebhooks renders the webhook form as a file to apply.
func RenderWebhooks(p contract.Policy, o WebhookOptions) (File, error) {
	c, err := Webhooks(p, o)
	if err != nil {
		return File{}, err
	}
	head := "Sends the nodewarden webhook the writes that the contract judges, and no other.\n" +
		"Apply it when the webhook is ready; delete it before the webhook.\n" +
		fmt.Sprintf("Install %s: ", o.Install)
	if o.Install == WebhookAlone {
		head += "an external write to Ready is refused while the webhook is away."
	} else {
		head += "while the webhook is away the policies decide alone, and nothing waits for more than a second."
	}
	if !o.filters() {
		head += fmt.Sprintf("\nKubernetes %s has no matchConditions: every write to nodes/status is sent, and the skew entry is left out.", o.Server)
	}
	if len(o.CABundle) == 0 {
		head += "\ncaBundle is left to whoever injects it; a server-side apply of this file does not reset it."
	}
	text, err := encode(head, []document{{object: c}})
	return File{Name: WebhookFile, Text: text}, err
}

// RenderPolicies renders the policy form as a file to apply.
func RenderPolicies(p contract.Policy, server Version) (File, error) {
	set, err := Policies(p, Options{Server: server})
	if err != nil {
		return File{}, err
	}
	text, err := encode(set.head(p)+"\nApply with: kubectl apply --server-side -f "+PolicyFile+
		"\nWhat an earlier file left stays in force until it is deleted: docs/upgrade.md, Policies applied by hand.", set.documents(p))
	return File{Name: PolicyFile, Text: text}, err
}

// RenderStatic renders the files that an API server loads itself. Folder is
// where they will lie on the API server's machine, an absolute path.
func RenderStatic(p contract.Policy, server Version, folder string) ([]File, error) {
	if !path.IsAbs(folder) {
		return nil, fmt.Errorf("folder %q on the API server's machine: want an absolute path", folder)
	}
	set, err := Policies(p, Options{Server: server, Static: true})
	if err != nil {
		return nil, err
	}
	if len(set.Guards) == 0 {
		return nil, errors.New("every rule is off, and an API server does not start with a file that holds no policy; turn a rule on, or leave the files away")
	}
	manifests := path.Join(StaticManifests, PolicyFile)
	text, err := encode(set.head(p)+"\nThe API server reads this file itself and again when it changes; nobody can change or delete it through the API.", set.documents(p))
	if err != nil {
		return nil, err
	}
	configuration, err := encode("Start every API server with --admission-control-config-file="+path.Join(folder, AdmissionConfigFile)+"\n"+
		"If it already has such a file, add the plugin to that one. Manifests that cannot be read keep it from starting.",
		[]document{{object: loading(path.Join(folder, StaticManifests))}})
	if err != nil {
		return nil, err
	}
	return []File{{Name: manifests, Text: text}, {Name: AdmissionConfigFile, Text: configuration}}, nil
}

// admissionConfiguration is the part of the API server's configuration that
// has it load policies from files.
type admissionConfiguration struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Plugins    []admissionPlugin `json:"plugins"`
}

type admissionPlugin struct {
	Name          string              `json:"name"`
	Configuration policyConfiguration `json:"configuration"`
}

type policyConfiguration struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

func loading(folder string) admissionConfiguration {
	const version = "apiserver.config.k8s.io/v1"
	return admissionConfiguration{version, "AdmissionConfiguration", []admissionPlugin{{
		"ValidatingAdmissionPolicy", policyConfiguration{version, "ValidatingAdmissionPolicyConfiguration", folder},
	}}}
}

func (s *Set) head(p contract.Policy) string {
	profile := p.Profile
	if profile == "" {
		profile = contract.Enforce
	}
	head := fmt.Sprintf("The contract of KEP-6371 for external writers of a Node's Ready condition, profile %s:\n"+
		"one policy a rule, decided inside the API server. CEL holds every rule.", profile)
	if len(s.Off) > 0 {
		names := make([]string, len(s.Off))
		for i, r := range s.Off {
			names[i] = string(r)
		}
		head += "\nOff: " + strings.Join(names, ", ") + "."
	}
	if len(s.Guards) == 0 {
		head += "\nEvery rule is off: there is nothing to apply."
	}
	return head
}

// documents puts every policy before its bindings.
func (s *Set) documents(p contract.Policy) []document {
	var all []document
	for _, g := range s.Guards {
		comment := fmt.Sprintf("%s (%s): broken when %s.", g.Rule, p.Action(g.Rule), g.Rule.Refuses())
		if len(g.Policy.Spec.AuditAnnotations) == 0 {
			comment += " No audit annotation: with this list it would be longer than an API server takes."
		}
		all = append(all, document{comment, g.Policy})
		for _, b := range g.Bindings {
			all = append(all, document{object: b})
		}
		if len(g.Bindings) > 1 {
			all[len(all)-1].comment = "A Node's creation records no failure, so there it only warns."
		}
	}
	return all
}
