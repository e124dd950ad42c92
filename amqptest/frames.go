package amqptest

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// Frame is one frame, or protocol header, that went over a connection.
type Frame struct {
	// Time is when the server handled or wrote it.
	Time time.Time
	// Connection counts the connections that clients have asked for, from 1, as
	// Fault.OnConnection does.
	Connection int
	// Container is the client's container-id, "" up to its OPEN.
	Container string
	// Sent says that the server sent it.
	Sent bool
	// Channel is the sender's.
	Channel uint16
	// Size is its length in bytes, a message's payload included.
	Size int
	// Name is the performative, such as "transfer" or "sasl-init"; "header" for a
	// protocol header, "heartbeat" for an empty frame, "bytes" for what
	// WriteBytes wrote.
	Name string
	// Fields are the fields of the performative that are set, by the names of the
	// standard, and the length of a transfer's payload. The bytes of messages,
	// and those of the SASL dialogue, are not among them.
	Fields []slog.Attr
}

// String is f as one line: the time, the connection, the channel, who sent it,
// and what it says.
//
//	12:00:00.000000 #1 ch 0 client transfer handle=0 delivery-id=0 delivery-tag=00000000 payload=19
func (f Frame) String() string {
	var b strings.Builder
	from := "client"
	if f.Sent {
		from = "server"
	}
	fmt.Fprintf(&b, "%s #%d ch %d %s %s", f.Time.Format("15:04:05.000000"), f.Connection, f.Channel, from, f.Name)
	for _, a := range f.Fields {
		b.WriteString(" " + a.Key + "=" + a.Value.String())
	}
	return b.String()
}

// Frames returns the last frames that went over the server's connections, up
// to 1,000, the oldest first.
func (s *Server) Frames() []Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.trace.inOrder()
	frames := make([]Frame, len(kept))
	for i, e := range kept {
		frames[i] = e.frame()
	}
	return frames
}

// logFrame tells Options.Trace of a frame.
func (s *Server) logFrame(e *traced) {
	ctx := context.Background()
	if !s.opts.Trace.Enabled(ctx, slog.LevelDebug) {
		return
	}
	f := e.frame()
	from := "client"
	if f.Sent {
		from = "server"
	}
	s.opts.Trace.LogAttrs(ctx, slog.LevelDebug, f.Name, append([]slog.Attr{
		slog.Int("connection", f.Connection), slog.String("container", f.Container),
		slog.Int("channel", int(f.Channel)), slog.String("from", from), slog.Int("size", f.Size),
	}, f.Fields...)...)
}

// frame decodes what was kept of a frame.
func (e *traced) frame() Frame {
	f := Frame{
		Time: e.time, Connection: int(e.number) + 1, Container: e.container, Sent: e.sent, Size: e.size, Name: "bytes",
	}
	if e.raw {
		return f
	}
	if id, err := wire.ParseProtocolHeader(e.head); err == nil {
		f.Name = "header"
		f.Fields = []slog.Attr{slog.String("protocol", [...]string{wire.ProtoAMQP: "AMQP", wire.ProtoTLS: "TLS", wire.ProtoSASL: "SASL"}[id])}
		return f
	}
	h, err := wire.ParseFrameHeader(e.head)
	if err != nil {
		return f
	}
	f.Channel = h.Channel
	if f.Name = "heartbeat"; e.size > wire.FrameHeaderSize {
		f.Name, f.Fields = performativeFields(e.head[min(int(h.DOff)*4, len(e.head)):], e.size-len(e.head), h.Type == wire.TypeSASL)
	}
	return f
}

// performativeFields are the name and the fields of the performative at the
// start of body, after which there are more bytes than were kept.
func performativeFields(body []byte, more int, secret bool) (string, []slog.Attr) {
	code, _, err := wire.PeekDescriptor(body)
	if err != nil {
		return "unknown", nil
	}
	v, rest, err := wire.DecodeValue(body)
	d, _ := v.(wire.Described)
	list, ok := d.Value.(wire.List)
	kind := described[code]
	switch {
	case kind.name == "":
		kind.name = performativeName(code)
	case err != nil || !ok:
		return kind.name, []slog.Attr{slog.Int("not-shown", len(body)+more)}
	}
	var attrs []slog.Attr
	for i, v := range list {
		if v != nil {
			attrs = append(attrs, slog.String(kind.field(i), kind.show(i, v, secret)))
		}
	}
	if code == wire.CodeTransfer {
		attrs = append(attrs, slog.Int("payload", len(rest)+more))
	}
	return kind.name, attrs
}

// show is the value of the i-th field as text.
func (k *describedKind) show(i int, v any, secret bool) string {
	switch v := v.(type) {
	case bool:
		if k.field(i) == "role" {
			return wire.Role(v).String()
		}
	case uint8:
		switch k.field(i) {
		case "snd-settle-mode":
			return [...]string{"unsettled", "settled", "mixed"}[min(v, 2)]
		case "rcv-settle-mode":
			return [...]string{"first", "second"}[min(v, 1)]
		}
	case []byte:
		if secret {
			return fmt.Sprintf("(%d bytes)", len(v))
		}
	case wire.Described:
		return strings.TrimPrefix(show(v), k.field(i)) // error=error{...} says it twice
	}
	return show(v)
}

// show is a value as text.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		if v == "" || strings.ContainsAny(v, " =\"{}[],") || !printable(v) {
			return strconv.Quote(v)
		}
		return v
	case wire.Symbol:
		return show(string(v))
	case []byte:
		return hex.EncodeToString(v)
	case wire.UUID:
		return hex.EncodeToString(v[:])
	case wire.List:
		return "[" + join(len(v), func(i int) string { return show(v[i]) }) + "]"
	case wire.Array:
		return "[" + join(len(v.Elems), func(i int) string { return show(v.Elems[i]) }) + "]"
	case wire.Map:
		return "{" + join(len(v), func(i int) string { return show(v[i].Key) + "=" + show(v[i].Value) }) + "}"
	case wire.Described:
		return showDescribed(v)
	default:
		return fmt.Sprint(v)
	}
}

func showDescribed(d wire.Described) string {
	code, _ := d.Descriptor.(uint64)
	kind, known := described[code]
	list, ok := d.Value.(wire.List)
	if !known || !ok {
		return show(d.Descriptor) + ":" + show(d.Value)
	}
	var set []string
	for i, v := range list {
		if v != nil {
			set = append(set, kind.field(i)+"="+kind.show(i, v, false))
		}
	}
	if len(set) == 0 && len(kind.fields) == 0 {
		return kind.name
	}
	return kind.name + "{" + strings.Join(set, " ") + "}"
}

func join(n int, item func(int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return strings.Join(items, " ")
}

func printable(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}
