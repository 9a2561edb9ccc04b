package repo

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// inlineCode and fences hold examples, whose brackets are no links.
var (
	fences     = regexp.MustCompile("(?ms)^ {0,3}```.*?^ {0,3}```")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	anchorTag  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	files, pages := map[string]bool{}, map[string]string{}
	eachFile(t, func(name string, data []byte) {
		for at := name; at != "."; at = path.Dir(at) {
			files[at] = true
		}
		if strings.HasSuffix(name, ".md") {
			pages[name] = string(data)
		}
	})
	for name, text := range pages {
		text = inlineCode.ReplaceAllString(fences.ReplaceAllString(text, ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			checkLink(t, name, m[1], files, pages)
		}
	}
}

func checkLink(t *testing.T, from, to string, files map[string]bool, pages map[string]string) {
	t.Helper()
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return // of others, who may be away today
	}
	file, anchor, hasAnchor := strings.Cut(to, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(from), file)
	}
	if target != "." && !files[target] {
		t.Errorf("%s links to %s, which does not exist", from, to)
		return
	}
	if text, ok := pages[target]; ok && hasAnchor && !hasHeading(text, anchor) {
		t.Errorf("%s links to %s, but %s has no such heading", from, to, target)
	}
}

func hasHeading(text, anchor string) bool {
	text = fences.ReplaceAllString(text, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		if slug(m[1]) == anchor {
			return true
		}
	}
	for _, m := range anchorTag.FindAllStringSubmatch(text, -1) {
		if m[1] == anchor {
			return true
		}
	}
	return false
}

// slug is what hosts of Markdown make of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// notOurs are traces of one person's machine, and of places to fetch packages
// from that others reach by another name. They are written in two parts, or this file would be
// the first to break the rule.
var notOurs = []string{
	"/ro" + "ot/", "/wo" + "rk/", "/home" + "/", "/Us" + "ers/", "/tmp/n" + "w",
	"proxy.gol" + "ang.org", "sum.gol" + "ang.org", "gopr" + "oxy.io", "pypi" + ".org", "registry.npm" + "js.org",
}

func TestNothingSpeaksOfOneMachineOrItsPackageMirrors(t *testing.T) {
	eachFile(t, func(name string, data []byte) {
		if path.Base(name) == "go.sum" {
			return
		}
		for n, line := range strings.Split(string(data), "\n") {
			for _, trace := range notOurs {
				if strings.Contains(line, trace) {
					t.Errorf("%s:%d mentions %s: say it without", name, n+1, trace)
				}
			}
		}
	})
}

var makeTarget = regexp.MustCompile(`(?m)^([a-zA-Z][\w-]*):([^=\n]*)$`)

func TestEveryTargetOfTheMakefileHasHelp(t *testing.T) {
	targets := 0
	eachFile(t, func(name string, data []byte) {
		if name != "Makefile" {
			return
		}
		for _, m := range makeTarget.FindAllStringSubmatch(string(data), -1) {
			targets++
			if _, help, ok := strings.Cut(m[2], "## "); !ok || help == "" {
				t.Errorf("make %s has no help: add `## what it does` after its prerequisites", m[1])
			}
		}
	})
	if targets < 10 {
		t.Errorf("found only %d targets in the Makefile", targets)
	}
}
