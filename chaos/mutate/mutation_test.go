package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMutations_matchTheLibrary(t *testing.T) {
	assert.Len(t, mutations, 5)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			name, err := m.overlay("../..", t.TempDir())
			require.NoError(t, err)
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			var overlay map[string]map[string]string
			require.NoError(t, json.Unmarshal(b, &overlay))
			require.NotEmpty(t, overlay["Replace"])
			for original, changed := range overlay["Replace"] {
				before, err := os.ReadFile(original)
				require.NoError(t, err)
				after, err := os.ReadFile(changed)
				require.NoError(t, err)
				assert.NotEqual(t, string(before), string(after))
			}
		})
	}
}

func TestMutation_failsWhereTheLibraryHasChanged(t *testing.T) {
	m := mutation{name: "gone", edits: []edit{{file: "doc.go", old: "no such text stands there", new: "x"}}}
	_, err := m.overlay("../..", t.TempDir())
	assert.ErrorContains(t, err, "stands there 0 times")
}
