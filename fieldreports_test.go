package amqpflow_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of field reports names tests that exist, and all of those that are
// named after a report.
func TestFieldReports_tableNamesWhatHoldsThem(t *testing.T) {
	var source strings.Builder
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go", "amqptest/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			source.Write(text)
		}
	}
	text, err := os.ReadFile("docs/field-reports.md")
	require.NoError(t, err)
	table := string(text)

	named := regexp.MustCompile("`(Test[A-Za-z0-9]+_[A-Za-z0-9_]+|suite/[A-Za-z]+)`").FindAllStringSubmatch(table, -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		definition := "\nfunc " + name[1] + "(t *testing.T)"
		if behaviour, ok := strings.CutPrefix(name[1], "suite/"); ok {
			definition = `{"` + behaviour + `", ` + behaviour + `}`
		}
		found := strings.Contains(source.String(), definition)
		assert.True(t, found, "%s is in the table and nowhere else", name[1])
	}
	for _, test := range regexp.MustCompile(`func (TestFieldReport_\w+)`).FindAllStringSubmatch(source.String(), -1) {
		assert.Contains(t, table, "`"+test[1]+"`")
	}
	for report := range strings.FieldsSeq("F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 F11 F12 F13 F14 F15 F16 B01 B02 B05 B06 B07 B09 B10 B12 B13 B14 B15 B16 B17 B19 " +
		"B22 B23 B24 B25 B26 B28 B31 B32 B34 B36 B40 B41 B43 B44 B45") {
		assert.Contains(t, table, "\n| "+report+" |")
	}
}
