package mutants

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// results records which test found each mutant, for readers, and for the next run, which tries that test first.
type results struct {
	by    map[string]string // by mutant
	whole map[string]string // by part: a sentence about the last run of all of its mutants
}

const (
	notCaught = "not caught"
	notRun    = "not run"
)

var (
	documentRow   = regexp.MustCompile("(?m)^\\| ([a-z0-9-]+) \\|.*\\| (?:`([^`]+)`|\\*\\*([a-z ]+)\\*\\*) \\|$")
	documentWhole = regexp.MustCompile(`(?m)^All \d+ of the (\w+) were tried .*$`)
)

// wholeRun returns the sentence that documentWhole matches.
func wholeRun(part string, n int, how string) string {
	return fmt.Sprintf("All %d of the %s were tried in one run %s.", n, part, how)
}

// readDocument reads what describe has written. It returns no results if there is no document.
func readDocument(name string) results {
	d := results{by: map[string]string{}, whole: map[string]string{}}
	text, err := os.ReadFile(name)
	if err != nil {
		return d
	}
	for _, row := range documentRow.FindAllStringSubmatch(string(text), -1) {
		d.by[row[1]] = row[2] + row[3]
	}
	for _, sentence := range documentWhole.FindAllStringSubmatch(string(text), -1) {
		d.whole[sentence[1]] = sentence[0]
	}
	return d
}

// describe writes the document.
func (d results) describe(rules []rule, all []mutant) []byte {
	var b strings.Builder
	caught := 0
	for _, m := range all {
		if f := d.by[m.name]; f != "" && f != notCaught && f != notRun {
			caught++
		}
	}
	fmt.Fprintf(&b, `# Tests of the tests

Written by `+"`make mutants` and `make mutants-servers`"+`. Each mutant is the engine, or the servers, with one seeded bug (see `+"`internal/mutants`"+`): %d of %d were caught when they were
last tried. They are listed by the failure or the rule of the design that they break. The last column has the first test that failed.
`, caught, len(all))
	for _, part := range parts {
		if d.whole[part] != "" {
			fmt.Fprintf(&b, "\n%s\n", d.whole[part])
		}
	}
	for _, r := range rules {
		fmt.Fprintf(&b, "\n## %s: %s\n\n| mutant | what is wrong | caught by |\n|---|---|---|\n", r.name, r.text)
		for _, m := range all {
			if m.rule != r.name {
				continue
			}
			f := d.by[m.name]
			switch f {
			case "":
				f = "**" + notRun + "**"
			case notCaught, notRun:
				f = "**" + f + "**"
			default:
				f = "`" + f + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name, strings.ReplaceAll(m.what, "|", "\\|"), f)
		}
	}
	return []byte(b.String())
}
