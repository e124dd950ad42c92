package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
)

var credentials = scenario{
	name: "credentials", about: "the password is changed while connected; a token expires (on a virtual clock)",
	run: func(ctx context.Context, b *battery, seed uint64) []*result {
		all := []*result{virtual(ctx, "credentials", "TestCredentials", seed, pick(b, 1, 10), "-count=1")}
		for _, s := range b.servers("credentials", false) {
			if s.kind == quorum && s.ctl != "" {
				all = append(all, repeat(ctx, pick(b, 1, 10), seed, func(seed uint64) *result { return b.password(ctx, seed, s) }))
			}
		}
		return all
	},
}

// password changes a user's password at a RabbitMQ, closes the connection, and
// tells the client the one that counts only later.
func (b *battery) password(ctx context.Context, seed uint64, s *server) *result {
	user := fmt.Sprintf("chaos-%d", seed)
	var secret atomic.Value
	secret.Store("first")
	l := load{
		Rate: 100, FromAttach: true, Recovery: 5 * time.Second, Patience: 2 * time.Minute,
		Options: amqpflow.Options{Credentials: func(context.Context) (amqp.SASLType, error) {
			return amqp.SASLTypePlain(user, secret.Load().(string)), nil
		}},
	}
	steps := func(ctx context.Context, steps ...[]string) error {
		for _, args := range steps {
			if err := s.ctl.run(ctx, args...); err != nil {
				return err
			}
		}
		return nil
	}
	err := steps(ctx, []string{"add_user", user, "first"}, []string{"set_permissions", user, ".*", ".*", ".*"})
	if err != nil {
		return failure("credentials", seed, s, err)
	}
	r := b.trial(ctx, "credentials", seed, s, l, nil, func(ctx context.Context, t *trial) error {
		if !pause(ctx, time.Second) {
			return nil
		}
		err := t.outage(ctx, func(ctx context.Context) error {
			err := steps(ctx, []string{"change_password", user, "second"}, []string{"close_all_user_connections", user, "on purpose"})
			t.fault()
			pause(ctx, 5*time.Second) // RabbitMQ takes three to refuse
			secret.Store("second")
			return err
		})
		if err != nil {
			return err
		}
		return t.flowing(ctx)
	})
	if err := steps(context.WithoutCancel(ctx), []string{"delete_user", user}); err != nil {
		r.breaches = append(r.breaches, err.Error())
	}
	return r
}
