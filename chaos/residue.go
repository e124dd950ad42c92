package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// residue compares the goroutines and sockets of the process with those at
// the beginning of a run.
type residue struct {
	ignore  []goleak.Option
	sockets int
}

// toxic are goroutines of toxiproxy that may outlive its Stop.
var toxic = []string{".(*Proxy).freeBlocker", ".(*ToxicLink).read", ".(*ToxicLink).write", "/toxics.(*ToxicStub).Run"}

func newResidue() *residue {
	r := &residue{ignore: []goleak.Option{goleak.IgnoreCurrent()}, sockets: sockets()}
	for _, name := range toxic {
		r.ignore = append(r.ignore, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2"+name))
	}
	return r
}

// sockets is how many sockets the process has open; 0 where nobody can tell.
func sockets() (n int) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// breaches waits a little for what is about to end: toxiproxy's goroutines end
// with their connections, and nobody can wait for them.
func (r *residue) breaches(ctx context.Context) (all []string) {
	for range 20 {
		if all = r.left(); len(all) == 0 || !pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	return all
}

func (r *residue) left() (all []string) {
	if err := goleak.Find(r.ignore...); err != nil {
		all = append(all, "goroutines are left: "+clip(err.Error(), 3000))
	}
	if now := sockets(); now > r.sockets {
		all = append(all, fmt.Sprintf("%d sockets are open, before it were %d", now, r.sockets))
	}
	return all
}

// library is what the stack of a goroutine of the library has in it.
var library = regexp.MustCompile(`(?m)^(github\.com/amqpflow/amqpflow\.|github\.com/amqpflow/amqpflow/internal/dataplane|github\.com/Azure/go-amqp)`)

// strays are the goroutines of the library that are there, but for those that
// only stand in a handler of ours.
func strays() (all []string) {
	buf := make([]byte, 8<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if library.MatchString(stack) && !strings.Contains(stack, "main.strays") {
			all = append(all, stack)
		}
	}
	return all
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
