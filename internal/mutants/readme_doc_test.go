package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSentencesOfTheReadme: docs/reliability.md quotes each sentence of the README under What it guarantees and
// Limits, and names a test for it or says that there is none. It has no sentence that is no longer in the README,
// and the tests exist.
func TestSentencesOfTheReadme(t *testing.T) {
	said := squeezed(section(t, "README.md", "What it guarantees") + " " + section(t, "README.md", "Limits"))
	known := testsOfTheProject(t)
	quoted := regexp.MustCompile("`([^`]+)`")
	rows, none := 0, 0
	for line := range strings.Lines(section(t, "docs/reliability.md", "What the README says")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 || strings.HasPrefix(cells[0], "--") || strings.TrimSpace(cells[0]) == "sentence" {
			continue
		}
		rows++
		sentence := strings.TrimSpace(cells[0])
		before := len(said)
		said = strings.Replace(said, sentence, "", 1)
		assert.Less(t, len(said), before, "the README does not say so: %s", sentence)
		if strings.TrimSpace(cells[1]) == "none" {
			none++
			continue
		}
		tests := quoted.FindAllStringSubmatch(cells[1], -1)
		assert.NotEmpty(t, tests, "nothing shows: %s", sentence)
		for _, name := range tests {
			assert.True(t, known[name[1]], "there is no test %s", name[1])
		}
	}
	require.Greater(t, rows, 40)
	assert.LessOrEqual(t, none, 16, "sentences that nothing shows")

	// What remains are the titles of paragraphs and the first columns of tables.
	said = regexp.MustCompile(`\*\*[^*]+\*\*`).ReplaceAllString(said, "")
	for _, title := range []string{
		"`Options.Durability`", "a commit returns once it is", "and survives", "`Durable`, the default", "`WriteThrough`", "`Buffered`",
		"what", "limit", "keyspaces", "records that expire", "key", "value", "open transactions", "transaction", "processes", "file",
	} {
		said = strings.Replace(said, title, "", 1)
	}
	assert.NotRegexp(t, `[A-Za-z]`, said, "docs/reliability.md lacks this of the README")
}

// section returns the text of a document under a heading.
func section(t *testing.T, document, heading string) string {
	text, err := os.ReadFile(filepath.Join(root, document))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, ok, "%s has no section %q", document, heading)
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// squeezed returns text with single spaces, so that line breaks make no difference.
func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }
