package main

import (
	"context"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/amqptest"
)

var alarm = scenario{
	name: "alarm", about: "publishers are held back: credit or window withheld, a full queue, RabbitMQ's memory alarm",
	run: func(ctx context.Context, b *battery, seed uint64) (all []*result) {
		times := pick(b, 1, 10)
		all = append(all, b.withheld(ctx, seed, times))
		for _, s := range b.servers("alarm", false) {
			if s.kind == quorum {
				if s.ctl == "" {
					b.missing = append(b.missing, "alarm on rabbitmq: no command that controls it was given")
				} else {
					all = append(all, b.trial(ctx, "alarm", seed, s, held(), nil, watermark(s, times)))
				}
			}
			full := *s
			full.limit = 40
			all = append(all, repeat(ctx, times, seed, func(seed uint64) *result { return b.fullQueue(ctx, seed, &full) }))
		}
		return all
	},
}

// heldFor is how long publishers are held back.
const heldFor = 2 * time.Second

// held publishes with less patience than it is held back for, so that some
// give up without having sent.
func held() load {
	return load{
		Rate: 400, Patience: 700 * time.Millisecond, Senders: 2, Publishers: 2, FromAttach: true,
		Expect: func(v *verdict, t *trial) {
			t.oneConnection()
			if v.notSent == 0 {
				t.breach("no publisher was held back")
			}
		},
	}
}

// withheld runs what amqptest can withhold.
func (b *battery) withheld(ctx context.Context, seed uint64, times int) *result {
	return b.inProcess(amqptest.Options{Window: 200}, func(p *inProcess) *result {
		return b.trial(ctx, "alarm", seed, p, held(), nil, func(ctx context.Context, t *trial) error {
			queue := amqpflow.Queue(t.queue(0))
			if err := t.flowing(ctx); err != nil { // so that it happens to the link that is used
				return err
			}
			full := &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "on purpose"}
			for range times {
				for _, f := range []amqptest.Fault{
					amqptest.WithholdCredit(queue).For(heldFor),
					amqptest.WithholdWindow().For(heldFor),
					amqptest.Answer(queue, amqpflow.Rejected, full).Times(100),
				} {
					if err := p.server.Fault(f); err != nil {
						return err
					}
					t.fault()
					if !pause(ctx, heldFor+heldFor/2) {
						return nil
					}
					if err := t.flowing(ctx); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// watermark sets RabbitMQ's memory alarm off for a while.
func watermark(s *server, times int) faulter {
	const low, normal = "0.00001", "0.6"
	return func(ctx context.Context, t *trial) error {
		for range times {
			if !pause(ctx, time.Second) {
				return nil
			}
			err := t.outage(ctx, func(ctx context.Context) error {
				if err := s.ctl.run(ctx, "set_vm_memory_high_watermark", low); err != nil {
					return err
				}
				t.fault()
				pause(ctx, heldFor)
				return s.ctl.run(context.WithoutCancel(ctx), "set_vm_memory_high_watermark", normal)
			})
			if err != nil {
				return err
			}
			if err := t.flowing(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// fullQueue publishes faster than is consumed: RabbitMQ refuses what is over
// the length, and Artemis grants no more credit.
func (b *battery) fullQueue(ctx context.Context, seed uint64, s *server) *result {
	l := load{
		Messages: 3000, Senders: 4, Patience: 700 * time.Millisecond, FromAttach: true,
		Size:      func(int) int { return 4000 },
		Subscribe: amqpflow.SubscribeOptions{Credit: 10, Workers: 2},
		Handle: func(ctx context.Context, _ *amqpflow.Delivery, _ call) error {
			pause(context.WithoutCancel(ctx), 5*time.Millisecond)
			return nil
		},
		Expect: func(v *verdict, t *trial) {
			t.oneConnection()
			t.faults.Add(int64(v.refused + v.notSent))
		},
	}
	if s.kind == "" {
		l.Prefix = "full-block."
	}
	return b.trial(ctx, "alarm", seed, s, l, nil, nil)
}
