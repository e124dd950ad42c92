package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutation is one way of breaking the library, and the scenario that has to
// notice.
type mutation struct {
	name, scenario string
	edits          []edit
}

// edit replaces a text that stands exactly once in a file.
type edit struct{ file, old, new string }

var mutations = []mutation{
	{
		// Every 1000th disposition is dropped.
		name: "drop", scenario: "poison",
		edits: []edit{
			{
				file: "internal/dataplane/settle.go",
				old:  "\tg.runs.add(id)\n",
				new:  "\tif dispositions.Add(1)%1000 != 0 {\n\t\tg.runs.add(id)\n\t}\n",
			},
			{
				file: "internal/dataplane/settle.go",
				old:  "// maxGroups is",
				new:  "var dispositions atomic.Int64\n\n// maxGroups is",
			},
			{file: "internal/dataplane/settle.go", old: "import (\n", new: "import (\n\t\"sync/atomic\"\n"},
		},
	},
	{
		// Deliveries are settled before the handler is called.
		name: "early", scenario: "handlers",
		edits: []edit{{
			file: "dispatch.go",
			old:  "\terr := w.invoke(ctx, ds, started)\n",
			new:  "\tfor _, d := range ds {\n\t\t_ = w.s.settleAs(d, stateAccepted, Accepted)\n\t}\n\terr := w.invoke(ctx, ds, started)\n",
		}},
	},
	{
		// What waits to be settled is not written before a link or session ends.
		name: "flush", scenario: "stop",
		edits: []edit{{
			file: "internal/dataplane/session.go",
			old:  "\tif s.state != sessionMapped {\n\t\ts.settled.reset()\n\t}\n\tif s.settled.n == 0 {\n",
			new:  "\ts.settled.reset()\n\tif s.settled.n == 0 {\n",
		}},
	},
	{
		// The backoff does not grow.
		name: "backoff", scenario: "refuse",
		edits: []edit{{file: "internal/backoff/backoff.go", old: "\t\tbound *= 2\n", new: "\t\tbound *= 1\n"}},
	},
	{
		// One goroutine is left behind by each reconnect.
		name: "leak", scenario: "end-close",
		edits: []edit{{
			file: "supervise.go",
			old:  "\t\tconn, err := c.redial(way)\n",
			new:  "\t\tgo func() { select {} }()\n\t\tconn, err := c.redial(way)\n",
		}},
	},
}

// overlay writes the changed files, and what -overlay wants to know of them,
// into a folder, and returns the latter's name. It fails for a text that does
// not stand in its file exactly once: the library has changed, and so must the
// mutation.
func (m mutation) overlay(root, folder string) (string, error) {
	changed := map[string]string{}
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			return "", err
		}
		text, ok := changed[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s: %q stands there %d times, not once", e.file, e.old, n)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, text := range changed {
		name := filepath.Join(folder, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "_"))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = name
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}
