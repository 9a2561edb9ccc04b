package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"
)

// The parts of SPDX 2.3 that say what a program is made of.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID       string         `json:"SPDXID"`
		Name     string         `json:"name"`
		Version  string         `json:"versionInfo,omitempty"`
		Download string         `json:"downloadLocation"`
		Analyzed bool           `json:"filesAnalyzed"`
		Comment  string         `json:"comment,omitempty"`
		Refs     []spdxExternal `json:"externalRefs,omitempty"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const none = "NOASSERTION"

// billOfMaterials lists the modules that went into a program, as the program
// itself knows them.
func billOfMaterials(binary, program, platform string, o options) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what the program is made of: %w", err)
	}
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: program + " " + o.version,
		Namespace: "https://github.com/nodewarden/nodewarden/sbom/" + program + "/" + o.version + "/" + o.commit + "/" + platform,
		Creation:  spdxCreation{Created: o.created.UTC().Format(time.RFC3339), Creators: []string{"Tool: nodewarden-image"}},
	}
	ours := spdxPackage{ID: "SPDXRef-program", Name: program, Version: o.version, Download: none, Comment: "commit " + o.commit}
	doc.Packages = append(doc.Packages, ours, spdxPackage{ID: "SPDXRef-go", Name: "go", Version: info.GoVersion, Download: none,
		Refs: purl("pkg:golang/stdlib@" + info.GoVersion)})
	doc.Relationships = append(doc.Relationships,
		spdxRelationship{doc.ID, "DESCRIBES", ours.ID}, spdxRelationship{ours.ID, "DEPENDS_ON", "SPDXRef-go"})
	for i, m := range info.Deps {
		p := module(i, m)
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, spdxRelationship{ours.ID, "DEPENDS_ON", p.ID})
	}
	return json.MarshalIndent(doc, "", " ")
}

func module(i int, m *debug.Module) spdxPackage {
	if m.Replace != nil {
		m = m.Replace
	}
	return spdxPackage{ID: fmt.Sprintf("SPDXRef-module-%d", i), Name: m.Path, Version: m.Version, Download: none, Comment: "go.sum " + m.Sum,
		Refs: purl("pkg:golang/" + m.Path + "@" + m.Version)}
}

func purl(locator string) []spdxExternal {
	return []spdxExternal{{"PACKAGE-MANAGER", "purl", locator}}
}
