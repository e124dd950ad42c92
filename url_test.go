package amqpflow

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseURL_hostsPortsAndUsers(t *testing.T) {
	for raw, want := range map[string]target{
		"amqp://localhost":               {host: "localhost", port: "5672"},
		"amqps://localhost":              {tls: true, host: "localhost", port: "5671"},
		"amqp+ssl://localhost":           {tls: true, host: "localhost", port: "5671"},
		"AMQP://localhost":               {host: "localhost", port: "5672"},
		"Amqps://localhost":              {tls: true, host: "localhost", port: "5671"},
		"AMQP+SSL://localhost":           {tls: true, host: "localhost", port: "5671"},
		"amqp://localhost/":              {host: "localhost", port: "5672"},
		"amqp://localhost:5673":          {host: "localhost", port: "5673"},
		"amqps://localhost:1":            {tls: true, host: "localhost", port: "1"},
		"amqp://localhost:65535/":        {host: "localhost", port: "65535"},
		"amqp://localhost:":              {host: "localhost", port: "5672"},
		"amqp://[::1]":                   {host: "::1", port: "5672"},
		"amqp://[::1]:5673":              {host: "::1", port: "5673"},
		"amqp://user@localhost":          {host: "localhost", port: "5672", user: url.User("user")},
		"amqp://user:@localhost":         {host: "localhost", port: "5672", user: url.UserPassword("user", "")},
		"amqp://user:secret@localhost":   {host: "localhost", port: "5672", user: url.UserPassword("user", "secret")},
		"amqp://u%40x:p%40ss@localhost":  {host: "localhost", port: "5672", user: url.UserPassword("u@x", "p@ss")},
		"amqp://u:p%23s%2Fs%3F@[::1]:99": {host: "::1", port: "99", user: url.UserPassword("u", "p#s/s?")},
		"amqp://u:p%25zz@localhost":      {host: "localhost", port: "5672", user: url.UserPassword("u", "p%zz")},
		"amqp://u:a+b@localhost":         {host: "localhost", port: "5672", user: url.UserPassword("u", "a+b")},
		"amqp://u:a:b@localhost":         {host: "localhost", port: "5672", user: url.UserPassword("u", "a:b")},
		"amqp://u:p%C3%A9@localhost":     {host: "localhost", port: "5672", user: url.UserPassword("u", "pé")},
	} {
		got, err := parseURL(raw)
		if assert.NoError(t, err, "%q", raw) {
			assert.Equal(t, want.tls, got.tls, "%q", raw)
			assert.Equal(t, want.host, got.host, "%q", raw)
			assert.Equal(t, want.port, got.port, "%q", raw)
			assert.Equal(t, want.user.String(), got.user.String(), "%q", raw)
		}
	}
}

func TestParseURL_dialsIPv6InBrackets(t *testing.T) {
	got, err := parseURL("amqp://[::1]")
	require.NoError(t, err)
	assert.Equal(t, "[::1]:5672", got.addr())
}

func TestParseURL_saysWhatIsWrong(t *testing.T) {
	for raw, text := range map[string]string{
		"":                              "no scheme",
		"localhost":                     "no scheme",
		"localhost:5672":                "no scheme",
		"//localhost":                   "no scheme",
		"://localhost":                  "no scheme",
		"amqp:localhost":                "no scheme",
		"http://localhost":              "unknown scheme",
		"amqp1://localhost":             "unknown scheme",
		" amqp://localhost":             "unknown scheme",
		"amqp://":                       "no host",
		"amqp:///":                      "no host",
		"amqp://:5672":                  "no host",
		"amqp://u:p@":                   "no host",
		"amqp://localhost/vh":           "path",
		"amqp://localhost/%2F":          "path",
		"amqp://localhost/a%2Fb":        "path",
		"amqp://localhost//":            "path",
		"amqp://localhost?heartbeat=5":  "query",
		"amqp://localhost/?x":           "query",
		"amqp://localhost?":             "query",
		"amqp://localhost#f":            "fragment",
		"amqp://localhost/#":            "fragment",
		"amqp://localhost:0":            "port",
		"amqp://localhost:65536":        "port",
		"amqp://localhost:amqp":         "the port",
		"amqp://::1":                    "brackets",
		"amqp://a:b:1":                  "brackets",
		"amqp://u:p%zz@localhost":       "percent-encode",
		"amqp://u:p#s@localhost":        "percent-encode",
		"amqp://u:p/s@localhost":        "percent-encode",
		"amqp://u:1/s@localhost":        "percent-encode",
		"amqp://u:p?s@localhost":        "percent-encode",
		"amqp://local host":             "the host",
		"amqp://localhost\x7f":          "the host",
		"amqp://u:p@x,amqp://u:p@y:567": "percent-encode",
	} {
		_, err := parseURL(raw)
		if assert.Error(t, err, "%q", raw) {
			assert.Contains(t, err.Error(), text, "%q", raw)
		}
	}
}

// Every one of these is wrong, or looks right and is not; the parts of the
// password are long enough to be found wherever they would leak.
var secretURLs = []string{
	"amqp://user:hunter2secret@localhost",
	"amqp://user:hunter2secret@localhost/path",
	"amqp://user:hunter2secret@localhost?q=1",
	"amqp://user:hunter2secret@localhost#f",
	"amqp://user:hunter2secret@",
	"amqp://user:hunter2secret@localhost:70000",
	"amqp://user:hunter2secret@localhost:port",
	"http://user:hunter2secret@localhost",
	"user:hunter2secret@localhost",
	"amqp://user:hunter2#secret@localhost",
	"amqp://user:hunter2/secret@localhost",
	"amqp://user:hunter2?secret@localhost",
	"amqp://user:hunter2%secret@localhost",
	"amqp://user:hunter2@secret@localhost",
	"amqp://user:hunter2:secret@localhost",
	"amqp://user:hunter2[secret@localhost",
	"amqp://user:hunter2 secret@localhost",
	"amqp://user:hunter2\\secret@localhost",
	"amqp://user:hunter2://secret@localhost",
	"amqp://user:@hunter2/secret@localhost",
	"amqp://user:hunter2\nsecret@localhost",
}

func TestParseURL_errorsShowNoPartOfThePassword(t *testing.T) {
	for _, raw := range secretURLs {
		_, err := parseURL(raw)
		if err == nil {
			continue
		}
		assertNoSecret(t, raw, err.Error())
		shown := &ConnectError{URL: redact(raw), Step: stepParse, Err: err}
		assertNoSecret(t, raw, shown.Error())
	}
}

func TestRedact_showsNoPartOfThePassword(t *testing.T) {
	for _, raw := range secretURLs {
		assertNoSecret(t, raw, redact(raw))
	}
}

func TestRedact_keepsTheRest(t *testing.T) {
	for raw, want := range map[string]string{
		"amqp://u:p@localhost:5672": "amqp://localhost:5672",
		"amqps://localhost":         "amqps://localhost",
		"amqp://localhost/vh?x=y":   "amqp://localhost/vh",
		"localhost:5672":            "localhost:5672",
		"u:p@localhost":             "localhost",
		"":                          "",
	} {
		assert.Equal(t, want, redact(raw), "%q", raw)
	}
}

func assertNoSecret(t *testing.T, raw, text string) {
	t.Helper()
	for _, part := range []string{"hunter2", "secret"} {
		if strings.Contains(text, part) {
			t.Errorf("%q shows %q of the password: %s", raw, part, text)
		}
	}
}
