package amqpflow

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is what a broker's URL says.
type target struct {
	text string // redacted
	tls  bool
	user *url.Userinfo // nil without user-info
	host string
	port string
}

func (t *target) addr() string { return net.JoinHostPort(t.host, t.port) }

var errEncoding = errors.New("cannot be parsed: percent-encode reserved characters in the user and the password")

// parseURL reads a broker's URL. No error shows more of it than the scheme and
// the port: anything else may be a part of a password that was not encoded.
func parseURL(raw string) (*target, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || scheme == "" {
		return nil, errors.New("no scheme: use amqp:// or amqps://")
	}
	t := &target{port: "5672"}
	switch strings.ToLower(scheme) {
	case "amqp":
	case "amqps", "amqp+ssl":
		t.tls, t.port = true, "5671"
	default:
		return nil, fmt.Errorf("unknown scheme %q: use amqp, amqps or amqp+ssl", clip(scheme))
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		return nil, errEncoding
	}
	u, err := url.Parse("amqp://" + rest)
	if err != nil && !strings.Contains(rest, "@") {
		return nil, errors.New("cannot be parsed: the host or the port is invalid")
	}
	if err != nil {
		return nil, errEncoding
	}
	switch {
	case strings.Contains(rest, "?"):
		return nil, errors.New("a query is not supported")
	case strings.Contains(rest, "#"):
		return nil, errors.New("a fragment is not supported")
	case u.Path != "" && u.Path != "/":
		return nil, errors.New("a path is not supported: a virtual host goes into Options.Hostname")
	case u.Hostname() == "":
		return nil, errors.New("no host")
	case strings.Contains(u.Hostname(), ":") && !strings.Contains(u.Host, "["):
		return nil, errors.New("an IPv6 address stands in brackets")
	}
	if u.Port() != "" {
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return nil, errors.New("the port is not from 1 to 65535")
		}
		t.port = u.Port()
	}
	t.text, t.host, t.user = redact(raw), u.Hostname(), u.User
	return t, nil
}

// parseFailover reads Options.FailoverURLs, and takes them out of o: they may
// hold passwords. What is wrong with main is not reported here.
func parseFailover(main string, o *Options) (targets []*target, bad []error) {
	first, _ := parseURL(main)
	for i, raw := range o.FailoverURLs {
		t, err := parseURL(raw)
		switch {
		case err != nil:
		case t.user != nil && o.Credentials != nil:
			err = errBothCredentials
		case first != nil && (t.user == nil) != (first.user == nil):
			err = errors.New("user-info stands in some URLs and not in others")
		}
		if err != nil {
			bad = append(bad, &OptionError{Field: fmt.Sprintf("Options.FailoverURLs[%d]", i), Err: err})
			continue
		}
		targets = append(targets, t)
	}
	o.FailoverURLs = nil
	return targets, bad
}

var errBothCredentials = errors.New("user-info in the URL together with Options.Credentials")

// redact is the URL without user-info, query and fragment, also where it
// cannot be parsed: everything up to the last @ is taken for user-info.
func redact(raw string) string {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "", raw
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	if !found {
		return rest
	}
	return scheme + "://" + rest
}
