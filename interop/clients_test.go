package interop_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// client is a program that does a round with the URL that is its last
// argument, and prints "ok STEP" after each step.
type client struct {
	name string
	// argv is how to start it, or why it cannot be; installed is the folder that
	// install.sh has filled.
	argv func(installed string) ([]string, error)
}

var clients = []client{
	{"qpid-proton", func(string) ([]string, error) {
		const python = "/usr/bin/python3" // Debian's, which has Debian's packages
		if out, err := exec.Command(python, "-c", "import proton").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		return []string{python, "qpid_proton.py"}, nil
	}},
	{"rhea", func(installed string) ([]string, error) {
		node, err := exec.LookPath("node")
		if err != nil {
			return nil, err
		}
		modules := filepath.Join(installed, "node_modules")
		if _, err := os.Stat(filepath.Join(modules, "rhea")); err != nil {
			return nil, err
		}
		return []string{"env", "NODE_PATH=" + modules, node, "rhea.js"}, nil
	}},
	{"protonj2", func(installed string) ([]string, error) {
		java, err := exec.LookPath("java")
		if err != nil {
			return nil, err
		}
		jars := filepath.Join(installed, "jars")
		if found, _ := filepath.Glob(filepath.Join(jars, "protonj2-client-*.jar")); len(found) == 0 {
			return nil, errors.New("no protonj2-client in " + jars)
		}
		return []string{java, "-Dslf4j.internal.verbosity=ERROR", "-cp", filepath.Join(jars, "*"), "Protonj2.java"}, nil
	}},
}

// command is argv, or the end of the test: in CI a client that is missing is a
// failure.
func (c client) command(t *testing.T) []string {
	t.Helper()
	installed, err := filepath.Abs("../.ci/cache/interop")
	if err != nil {
		t.Fatal(err)
	}
	argv, err := c.argv(installed)
	switch {
	case err == nil:
		return argv
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is not installed: %v", c.name, err)
	default:
		t.Skipf("%s is not installed (bash install.sh does it): %v", c.name, err)
	}
	return nil
}
