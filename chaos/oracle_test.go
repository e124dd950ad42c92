package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// entry writes one message into a ledger.
type entry struct {
	answers  []Answer
	attempts []attempt
}

func (e entry) in(l *ledger) string {
	seq := l.publish(0)
	for _, a := range e.answers {
		l.answered(0, seq, a)
	}
	for _, a := range e.attempts {
		d := new(amqpflow.Delivery)
		l.begin(0, seq, d, a.link)
		if a.ending != running {
			l.ended(0, seq, d, a.ending)
		}
		if a.settled || a.lost {
			l.settled(0, seq, d, a.lost)
		}
	}
	return l.id(0, seq)
}

func TestOracle_judgesEachMessage(t *testing.T) {
	accepted := attempt{link: 1, ending: accepts, settled: true}
	for _, test := range []struct {
		name   string
		entry  entry
		queued int
		dead   int
		breach string
	}{
		{name: "confirmed and accepted", entry: entry{[]Answer{Confirmed}, []attempt{accepted}}},
		{name: "confirmed and in the queue", entry: entry{[]Answer{Confirmed}, nil}, queued: 1},
		{name: "confirmed and a dead letter", entry: entry{[]Answer{Confirmed}, nil}, dead: 1},
		{name: "confirmed and nowhere", entry: entry{[]Answer{Confirmed}, nil}, breach: "lost"},
		{name: "uncertain and nowhere", entry: entry{[]Answer{Uncertain}, nil}},
		{name: "not sent and nowhere", entry: entry{[]Answer{NotSent}, nil}},
		{name: "not sent and handled", entry: entry{[]Answer{NotSent}, []attempt{accepted}}, breach: "the broker had it"},
		{name: "refused and in the queue", entry: entry{[]Answer{Refused}, nil}, queued: 1, breach: "the broker had it"},
		{name: "no answer", entry: entry{nil, []attempt{accepted}}, breach: "0 answers"},
		{name: "two answers", entry: entry{[]Answer{Confirmed, Uncertain}, []attempt{accepted}}, breach: "2 answers"},
		{name: "two copies", entry: entry{[]Answer{Confirmed}, nil}, queued: 2, breach: "2 copies"},
		{
			name:   "handed back and gone",
			entry:  entry{[]Answer{Uncertain}, []attempt{{link: 1, ending: handsBack, settled: true}}},
			breach: "phantom",
		},
		{
			name:   "handed back and in the queue",
			entry:  entry{[]Answer{Confirmed}, []attempt{{link: 1, ending: handsBack, settled: true}}},
			queued: 1,
		},
		{
			name:  "a second attempt after the first was handed back",
			entry: entry{[]Answer{Confirmed}, []attempt{{link: 1, ending: handsBack, settled: true}, accepted}},
		},
		{
			name:  "a second attempt on another link",
			entry: entry{[]Answer{Confirmed}, []attempt{accepted, {link: 2, ending: accepts, settled: true}}},
		},
		{
			name:  "a second attempt after a lost settlement",
			entry: entry{[]Answer{Confirmed}, []attempt{{link: 1, ending: accepts, lost: true}, accepted}},
		},
		{
			name:   "a second attempt while the first one's link lives",
			entry:  entry{[]Answer{Confirmed}, []attempt{accepted, accepted}},
			breach: "came while the one before had it",
		},
		{
			name:   "an attempt without an end",
			entry:  entry{[]Answer{Confirmed}, []attempt{{link: 1}}},
			queued: 1, breach: "has not ended",
		},
		{
			name:   "accepted on the last link and still in the queue",
			entry:  entry{[]Answer{Confirmed}, []attempt{{link: 2, ending: accepts, settled: true}}},
			queued: 1, breach: "still in the queue",
		},
		{
			name:   "accepted on a link that was lost and still in the queue",
			entry:  entry{[]Answer{Confirmed}, []attempt{accepted}},
			queued: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger("run", 1)
			id := test.entry.in(l)
			o := &oracle{contents: newContents(), alive: map[uint32]bool{2: true}}
			if test.queued > 0 {
				o.queued[id] = test.queued
			}
			if test.dead > 0 {
				o.dead[id] = test.dead
			}
			v := o.judge(l)
			if test.breach == "" {
				assert.Empty(t, v.breaches)
				return
			}
			require.NotEmpty(t, v.breaches)
			assert.Contains(t, v.breaches[0]+v.breaches[len(v.breaches)-1], test.breach)
		})
	}
}

func TestOracle_reportsWhatNobodyPublished(t *testing.T) {
	l := newLedger("run", 1)
	l.strangers.Add(1)
	l.corrupt.Add(1)
	o := &oracle{contents: newContents()}
	o.strangers = 1
	assert.Len(t, o.judge(l).breaches, 3)
}

func TestLedger_readsItsOwnIDs(t *testing.T) {
	l := newLedger("run", 3)
	publisher, seq, ok := l.parse(l.id(2, 70))
	assert.True(t, ok)
	assert.Equal(t, 2, publisher)
	assert.Equal(t, 70, seq)
	for _, id := range []string{"", "run", "run/1", "run/3/0", "run/-1/0", "run/0/x", "other/0/0"} {
		_, _, ok := l.parse(id)
		assert.False(t, ok, id)
	}
}

func TestLedger_knowsWhatIsOutstanding(t *testing.T) {
	l := newLedger("run", 1)
	entry{[]Answer{Confirmed}, nil}.in(l)
	assert.EqualValues(t, 1, l.outstanding())
	entry{[]Answer{Confirmed}, []attempt{{ending: accepts, settled: true}, {ending: accepts, settled: true}}}.in(l)
	assert.EqualValues(t, 1, l.outstanding(), "a message counts once, however often it is handled")
}

func TestBody_isIntactOrNot(t *testing.T) {
	b := body(3, 7, 100)
	assert.True(t, intact(b, 3, 7))
	assert.False(t, intact(b, 3, 8))
	assert.False(t, intact(b[:50], 3, 7))
	b[99]++
	assert.False(t, intact(b, 3, 7))
}
