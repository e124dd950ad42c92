package amqptest_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow"
)

// behaviour is one thing that a broker does. It is looked at on every peer,
// and what is seen has to be what is wanted there.
type behaviour struct {
	name   string
	seen   func(t *testing.T, p *peer) string
	want   want
	breaks bool // a rule of the standard: what amqptest reports is not held against it
}

// want is what is to be seen, "this or that" where chance decides. A field
// wins over those before it, and "" says no more than they do; the first is
// every peer's.
type want struct {
	any               string
	generic           string // amqptest with its default dialect
	artemis, rabbitmq string // the dialect, and the broker that it is taken from
	fake              string // amqptest in every dialect: what it refuses, and what it is stricter about
	real              string // both brokers

	realArtemis, realRabbitMQ string // what amqptest leaves to them
}

// none is wanted where a behaviour cannot be looked at.
const none = "-"

func (w want) of(p *peer) string {
	s := w.any
	switch p.dialect {
	case amqpflow.DialectArtemis:
		s = cmp.Or(w.artemis, s)
	case amqpflow.DialectRabbitMQ:
		s = cmp.Or(w.rabbitmq, s)
	default:
		s = cmp.Or(w.generic, s)
	}
	switch {
	case !p.real:
		return cmp.Or(w.fake, s)
	case p.dialect == amqpflow.DialectArtemis:
		return cmp.Or(w.realArtemis, w.real, s)
	}
	return cmp.Or(w.realRabbitMQ, w.real, s)
}

// workers is how many behaviours of a peer are under way together: most of
// their time goes by in waiting for the peer.
const workers = 6

// TestTruth holds amqptest, in each of its dialects, and the brokers that the
// dialects are taken from against one table of behaviours, and prints the
// table of what was seen. A broker takes part where its URL is in the
// environment.
func TestTruth(t *testing.T) {
	columns := []*column{
		{name: "generic", dialect: amqpflow.DialectGeneric},
		{name: "artemis-dialect", dialect: amqpflow.DialectArtemis},
		{name: "artemis", dialect: amqpflow.DialectArtemis, env: "AMQPFLOW_ARTEMIS_URL"},
		{name: "rabbitmq-dialect", dialect: amqpflow.DialectRabbitMQ},
		{name: "rabbitmq", dialect: amqpflow.DialectRabbitMQ, env: "AMQPFLOW_RABBITMQ_URL"},
	}
	t.Cleanup(func() { t.Log("\n" + tableOf(columns)) })
	var wg sync.WaitGroup
	for _, c := range columns {
		wg.Go(func() { t.Run(c.name, c.look) })
	}
	wg.Wait()
}

// column is what one peer was seen to do.
type column struct {
	name    string
	dialect amqpflow.Dialect
	env     string // names the URL of a broker; "" for amqptest

	mu   sync.Mutex
	seen map[string]string // by the behaviour's name
}

// look goes through all behaviours.
func (c *column) look(t *testing.T) {
	c.seen = map[string]string{}
	open := func(t *testing.T, b *behaviour) *peer { return fake(t, c.name, c.dialect, b.breaks) }
	if c.env != "" {
		url := os.Getenv(c.env)
		if url == "" {
			t.Skip(c.env + " is not in the environment")
		}
		p := broker(t, c.name, c.dialect, url)
		open = func(*testing.T, *behaviour) *peer { return p }
	}
	due := make(chan *behaviour, len(behaviours)) // sent and closed here, received by the workers
	for i := range behaviours {
		due <- &behaviours[i]
	}
	close(due)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for b := range due {
				t.Run(b.name, func(t *testing.T) { c.check(t, b, open) })
			}
		})
	}
	wg.Wait()
}

func (c *column) check(t *testing.T, b *behaviour, open func(*testing.T, *behaviour) *peer) {
	began := time.Now()
	defer func() { t.Logf("%v", time.Since(began)) }()
	wanted := b.want.of(&peer{dialect: c.dialect, real: c.env != ""})
	if wanted == none {
		t.Skip("cannot be seen here")
	}
	seen := "failed"
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[b.name] = seen
	}()
	seen = b.seen(t, open(t, b))
	assert.Contains(t, strings.Split(wanted, " or "), seen)
}

// tableOf has a row for each behaviour and a column for each peer.
func tableOf(columns []*column) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "behaviour")
	for _, c := range columns {
		fmt.Fprint(w, "\t", c.name)
	}
	fmt.Fprintln(w)
	for _, row := range behaviours {
		fmt.Fprint(w, row.name)
		for _, c := range columns {
			fmt.Fprint(w, "\t", cmp.Or(c.seen[row.name], none))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}
