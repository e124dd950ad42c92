package amqpflow_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow"
)

// logbook is a slog handler's output that a test can read meanwhile.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// line returns the first line that has all of parts, "" if there is none.
func (l *logbook) line(parts ...string) string {
next:
	for text := range strings.Lines(l.String()) {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				continue next
			}
		}
		return text
	}
	return ""
}

func (l *logbook) assertLine(t *testing.T, parts ...string) {
	t.Helper()
	assert.NotEmpty(t, l.line(parts...), "no line with %q in\n%s", parts, l)
}

// within is a context of the bubble's clock.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// assertGoroutines waits until no more than base goroutines are left, and shows
// them where there are more.
func assertGoroutines(t *testing.T, base int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > base && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > base {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", n, base, buf[:runtime.Stack(buf, true)])
	}
}

// accepting is a handler that accepts everything.
func accepting(context.Context, *amqpflow.Delivery) error { return nil }

// shutdown ends a broker and fails the test where that is not clean.
func shutdown(t *testing.T, b *amqpflow.Broker) {
	t.Helper()
	assert.NoError(t, b.Shutdown(within(t, 10*time.Second)))
}

// quiet waits, in a bubble, until nothing more happens: settlements are
// gathered for up to a millisecond before they leave.
func quiet() {
	synctest.Wait()
	<-time.After(5 * time.Millisecond)
	synctest.Wait()
}
