package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
	"github.com/amqpflow/amqpflow/internal/wire"
)

var poison = scenario{
	name: "poison", about: "one message in 50 is not decodable, of the wrong body type, too large, or broken",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		const limit = 4096
		l := load{
			Messages: pick(b, 5_000, 50_000), Codec: wholeBodies{}, Value: poisonous,
			Subscribe: amqpflow.SubscribeOptions{MaxMessageSize: limit},
			Unseen:    rejected,
			Expect: func(v *verdict, t *trial) {
				t.oneConnection()
				t.faults.Add(int64(v.dead))
				if n := rejected(t); n != int64(v.dead) {
					v.breach("%d messages were rejected, and %d are dead letters", n, v.dead)
				}
			},
		}
		return []*result{b.inProcess(amqptest.Options{}, func(p *inProcess) *result {
			return b.trial(ctx, "poison", seed, p, l, func(t *trial) { t.relay.tamper = t.breakSections }, nil)
		})}
	},
}

// kinds of poison, by sequence number.
const (
	undecodable = iota
	wrongType
	tooLarge
	broken
	kinds
)

const poisonEvery = 50

// poisonOf says whether a message is poison, and of which kind.
func poisonOf(seq int) (kind int, ok bool) {
	return seq / poisonEvery % kinds, seq%poisonEvery == poisonEvery/2
}

// poisonous is a message that no handler can read, nil for a good one.
func poisonous(publisher, seq int) any {
	kind, ok := poisonOf(seq)
	if !ok {
		return nil
	}
	switch kind {
	case undecodable:
		b := body(publisher, seq, 200)
		b[len(b)-1]++
		return b
	case wrongType:
		return &amqp.Message{Header: &amqp.MessageHeader{Durable: true, Priority: 4}, Value: int64(seq)}
	case tooLarge:
		return body(publisher, seq, 10_000)
	default:
		return nil // broken on its way
	}
}

// breakSections makes the properties of broken messages an unknown section.
func (t *trial) breakSections(f frame) {
	if f.code != wire.CodeTransfer {
		return
	}
	at := bytes.Index(f.raw, []byte(t.ledger.run+"/"))
	if at < 0 {
		return
	}
	var publisher, seq int
	if _, err := fmt.Sscanf(string(f.raw[at+len(t.ledger.run):]), "/%d/%d", &publisher, &seq); err != nil {
		return
	}
	if kind, ok := poisonOf(seq); !ok || kind != broken {
		return
	}
	properties := bytes.LastIndex(f.raw[:at], []byte{0x00, 0x53, byte(wire.CodeProperties)})
	if properties >= 0 {
		f.raw[properties+2] = 0x7f
	}
}

// rejected is how many deliveries were rejected without a handler.
func rejected(t *trial) (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.subs {
		n += int64(s.Stats().Rejected)
	}
	return n
}

// whole is a body whose checksum is right.
type whole struct{}

// wholeBodies is a codec that decodes nothing else.
type wholeBodies struct{}

var errTorn = errors.New("the checksum is wrong")

func (wholeBodies) ContentType() string                      { return "application/octet-stream" }
func (wholeBodies) Append(dst []byte, _ any) ([]byte, error) { return dst, nil }

func (wholeBodies) Decode(data []byte, _ any) error {
	if len(data) < headSize || !checked(data) {
		return errTorn
	}
	return nil
}
