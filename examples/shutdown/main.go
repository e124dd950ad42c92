// Shutdown: an interrupt in the middle of a job. The job finishes, the jobs
// that were fetched and not begun go back uncounted, and the next instance of
// the service does them.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/examples/internal/peer"
)

const total = 5

func main() { peer.Main(run, "jobs") }

func run(ctx context.Context, p *peer.Peer) error {
	if err := publish(ctx, p); err != nil {
		return err
	}
	done, err := serve(ctx, p, 1)
	if err != nil {
		return err
	}
	fmt.Printf("stopped after %d job\n", done)

	rest, err := serve(ctx, p, total-done)
	if err != nil {
		return err
	}
	fmt.Printf("the next instance did the other %d\n", rest)
	return nil
}

func publish(ctx context.Context, p *peer.Peer) error {
	b := amqpflow.New(p.URL)
	if err := b.Connect(ctx); err != nil {
		return err
	}
	for job := range total {
		if err := b.Publisher().Publish(ctx, p.Queue("jobs"), job); err != nil {
			return err
		}
	}
	return b.Shutdown(ctx)
}

// serve is one instance of the service, interrupted during its last job.
func serve(ctx context.Context, p *peer.Peer, last int) (done int, err error) {
	serving, interrupt := context.WithCancel(ctx) // stands for signal.NotifyContext
	defer interrupt()

	b := amqpflow.New(p.URL, &amqpflow.Options{ShutdownTimeout: 10 * time.Second})
	amqpflow.Subscribe(b, p.Queue("jobs"), func(ctx context.Context, m *amqpflow.Message[int]) error {
		if m.Attempt() > 1 {
			fmt.Println("a job was counted although nobody had begun it")
		}
		if done+1 == last {
			interrupt()
		}
		select {
		case <-time.After(100 * time.Millisecond): // the work
			done++
			return nil
		case <-ctx.Done(): // only after ShutdownTimeout: there is time to finish
			return ctx.Err()
		}
	})
	err = b.Run(serving)
	return done, err
}
