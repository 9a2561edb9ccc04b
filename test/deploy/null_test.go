package deploy

import (
	"os"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// Null takes a default away. Of a list or a map it is an empty one; any other
// setting must not be lost, least of all the profile: no profile was enforce.
func TestNullIsRefusedWhereItWouldTakeADefaultAway(t *testing.T) {
	tryNulls(t, "", defaults(t))
}

// defaults are the chart's own values.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := sigsyaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func tryNulls(t *testing.T, prefix string, settings map[string]any) {
	t.Helper()
	for name, value := range settings {
		path := prefix + name
		_, isList := value.([]any)
		inner, isMap := value.(map[string]any)
		section := isMap && len(inner) > 0 && name != "resources"
		empty := (isList || isMap && !section) && !strings.HasPrefix(path, "policy.") && path != "networkPolicy.apiServerPorts" // where none is all

		everything := values{"install": "policy-and-webhook"}.at("controller.mode", "beside").at("monitoring.enabled", true).at(path, nil)
		_, err := template(t, everything)
		switch {
		case empty || path == "controller.mode": // of which null is off
			if err != nil {
				t.Errorf("%s: null is not taken for an empty one: %v", path, err)
			}
		case err == nil || !strings.Contains(err.Error(), "missing property '"+name+"'"):
			t.Errorf("%s: null is not refused by name: %v", path, err)
		}
		if section {
			tryNulls(t, path+".", inner)
		}
	}
}
