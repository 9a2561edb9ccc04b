package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodewarden/nodewarden/cmd/nodewarden/kubelet"
	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// renderFlags is the command line of policy render.
type renderFlags struct {
	policyFlags
	form, install, service, url, path string
	caFile, server                    string
	folder, hostFolder                string
}

func policyCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Render what an API server needs to hold writers to the contract",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(renderCommand(s))
	return cmd
}

func renderCommand(s streams) *cobra.Command {
	var f renderFlags
	cmd := &cobra.Command{
		Use:   "render --form webhook|policy|static",
		Short: "Render the webhook configuration or the policies, as YAML",
		Long: `Render the contract for an API server, from the same policy file that the
webhook reads.

  webhook  the ValidatingWebhookConfiguration that sends the webhook its reviews
  policy   a ValidatingAdmissionPolicy and its bindings for every rule
  static   the same policies as files that the API server loads itself, and the
           configuration that has it do so: nobody can delete them through the API

The output holds nothing that changes from one run to the next. A file is
replaced in one step.

Exit code 2: the command line, the policy file or the folder cannot be used.
3: a file could not be written or printed.`,
		Example: `  nodewarden policy render --form policy --profile warn | kubectl apply --server-side -f -
  nodewarden policy render --form webhook --service nodewarden-system/nodewarden-webhook
  nodewarden policy render --form static --output-dir ./admission --host-dir /etc/kubernetes/nodewarden`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.refuseIdle(cmd.Flags()); err != nil {
				return err
			}
			return render(s.out, f)
		},
	}
	fs := cmd.Flags()
	f.add(fs)
	fs.StringVar(&f.form, "form", "", "webhook, policy or static (required)")
	fs.StringVar(&f.install, "install", string(policy.PolicyAndWebhook), "which enforcers the cluster has, for --form webhook: policy-and-webhook (fails open) or webhook-alone (fails closed)")
	fs.StringVar(&f.service, "service", "nodewarden-system/nodewarden-webhook:443", "the webhook's Service, NAMESPACE/NAME[:PORT]")
	fs.StringVar(&f.path, "path", "/validate", "path of the review endpoint at the Service")
	fs.StringVar(&f.url, "url", "", "the webhook's URL, instead of a Service")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file to put into caBundle; without one the field is left to whoever injects it")
	fs.StringVar(&f.server, "kubernetes-version", "", "the oldest API server that is to work with the output, such as 1.34; without it, a recent one")
	fs.StringVar(&f.folder, "output-dir", "", "folder to write the files to, instead of standard output; required for --form static")
	fs.StringVar(&f.hostFolder, "host-dir", "/etc/kubernetes/nodewarden", "where the folder of --form static will lie on the API server's machine")
	return cmd
}

// formsOf holds the flags that not every form has a use for. A webhook asks its
// server, which has the profile from a policy file of its own.
var formsOf = map[string][]string{
	"install": {"webhook"}, "service": {"webhook"}, "path": {"webhook"}, "url": {"webhook"}, "ca-file": {"webhook"},
	"host-dir": {"static"}, "profile": {"policy", "static"},
}

// refuseIdle is an error where a flag was given that would do nothing.
func (f renderFlags) refuseIdle(given *pflag.FlagSet) error {
	var problems []error
	given.Visit(func(flag *pflag.Flag) {
		if forms, ok := formsOf[flag.Name]; ok && !slices.Contains(forms, f.form) && f.form != "" {
			problems = append(problems, fmt.Errorf("--%s is for --form %s and does nothing for --form %s: leave it out", flag.Name, strings.Join(forms, " and "), f.form))
		}
	})
	if f.url != "" && (given.Changed("service") || given.Changed("path")) {
		problems = append(problems, errors.New("--url takes the place of --service and --path: give one or the other"))
	}
	return errors.Join(problems...)
}

func render(out io.Writer, f renderFlags) error {
	p, err := f.load()
	if err != nil {
		return err
	}
	files, err := f.files(p)
	if err != nil {
		return err
	}
	if f.folder == "" {
		_, err := out.Write(files[0].Text)
		return err
	}
	for _, file := range files {
		name := filepath.Join(f.folder, filepath.FromSlash(file.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("--output-dir: %w", err)
		}
		// An API server reads its folder again while we write, and takes half a
		// file for a policy less.
		if err := kubelet.Replace(name, file.Text); err != nil {
			return errFault{fmt.Errorf("--output-dir: %w", err)}
		}
		fmt.Fprintln(out, name)
	}
	return nil
}

func (f renderFlags) files(p contract.Policy) ([]policy.File, error) {
	server, err := f.version()
	if err != nil {
		return nil, err
	}
	switch f.form {
	case "webhook":
		o, err := f.webhook(server)
		if err != nil {
			return nil, err
		}
		return one(policy.RenderWebhooks(p, o))
	case "policy":
		return one(policy.RenderPolicies(p, server))
	case "static":
		if f.folder == "" {
			return nil, errors.New("--form static writes several files: name a folder with --output-dir")
		}
		return policy.RenderStatic(p, server, f.hostFolder)
	case "":
		return nil, errors.New("--form is required: webhook, policy or static")
	default:
		return nil, fmt.Errorf("--form %q: want webhook, policy or static", f.form)
	}
}

func one(file policy.File, err error) ([]policy.File, error) { return []policy.File{file}, err }

func (f renderFlags) version() (policy.Version, error) {
	if f.server == "" {
		return policy.Version{}, nil
	}
	v, err := policy.ParseVersion(f.server)
	if err != nil {
		return v, fmt.Errorf("--kubernetes-version: %w", err)
	}
	return v, nil
}

func (f renderFlags) webhook(server policy.Version) (policy.WebhookOptions, error) {
	o := policy.WebhookOptions{Install: policy.Install(f.install), URL: f.url, Server: server}
	if f.url == "" {
		s, err := serviceFrom(f.service)
		if err != nil {
			return o, err
		}
		s.Path = f.path
		o.Service = s
	}
	if f.caFile == "" {
		return o, nil
	}
	bundle, err := os.ReadFile(f.caFile)
	if err != nil {
		return o, fmt.Errorf("--ca-file: %w", err)
	}
	if o.CABundle, err = certificates(bundle); err != nil {
		return o, fmt.Errorf("--ca-file: %s: %w", f.caFile, err)
	}
	return o, nil
}

// certificates are the ones in a PEM file, without the remarks around them. It
// must hold nothing else: a caBundle is public.
func certificates(file []byte) ([]byte, error) {
	var bundle []byte
	blocks := 0
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a block %q, and a caBundle is public: want certificates alone", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("certificate %d: %w", blocks, err)
		}
		bundle = append(bundle, pem.EncodeToMemory(block)...)
	}
	switch begun := bytes.Count(file, []byte("-----BEGIN ")); {
	case begun == 0:
		return nil, errors.New("it holds no PEM certificate")
	case begun != blocks:
		return nil, fmt.Errorf("%d of its %d PEM blocks cannot be read", begun-blocks, begun)
	}
	return bundle, nil
}

func serviceFrom(text string) (*policy.ServiceReference, error) {
	problem := fmt.Errorf("--service %q: want NAMESPACE/NAME or NAMESPACE/NAME:PORT", text)
	address, port, hasPort := strings.Cut(text, ":")
	namespace, name, ok := strings.Cut(address, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(name)) > 0 {
		return nil, problem
	}
	s := &policy.ServiceReference{Namespace: namespace, Name: name}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, problem
		}
		s.Port = int32(n)
	}
	return s, nil
}
