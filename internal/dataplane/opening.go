package dataplane

import (
	"errors"
	"time"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// header works off a protocol header.
//
// Spec: 2.2.
func (r *reader) header(b []byte) error {
	id, err := wire.ParseProtocolHeader(b)
	if err != nil {
		return err
	}
	c := r.c
	next, phase := stageOpen, PhaseOpen
	if id == wire.ProtoSASL {
		next, phase = stageSASL, PhaseSASL
	}
	c.mu.Lock()
	due := c.wrote
	if r.stage == stageHeader2 {
		due = int(wire.ProtoAMQP)
	}
	ok := id != wire.ProtoTLS && (due < 0 || due == int(id))
	if ok {
		c.phase = phase
	}
	c.mu.Unlock()
	if !ok {
		return violation("protocol header for protocol %d where %d is due", id, due)
	}
	r.stage = next
	return c.feed(append([]byte(nil), b...))
}

// sasl works off a SASL frame.
//
// Spec: 5.3.3.
func (r *reader) sasl(code uint64, body []byte) error {
	var unit []byte
	switch code {
	case wire.CodeSASLMechanisms:
		var p wire.SASLMechanisms
		if err := p.Decode(body); err != nil {
			return err
		}
		if p.Mechanisms = plainMechanisms(p.Mechanisms); len(p.Mechanisms) == 0 {
			return errors.New("peer offers no SASL mechanism")
		}
		unit = encode(wire.TypeSASL, 0, p.Append)
	case wire.CodeSASLChallenge:
		var p wire.SASLChallenge
		if err := p.Decode(body); err != nil {
			return err
		}
		unit = encode(wire.TypeSASL, 0, p.Append)
	case wire.CodeSASLOutcome:
		var p wire.SASLOutcome
		if err := p.Decode(body); err != nil {
			return err
		}
		r.c.mu.Lock()
		r.c.sasl = int(p.Code)
		r.c.mu.Unlock()
		if p.Code == 0 {
			r.stage = stageHeader2
		}
		unit = encode(wire.TypeSASL, 0, p.Append)
	default:
		return violation("performative 0x%02x in the SASL layer", code)
	}
	return r.c.feed(unit)
}

// open works off the peer's OPEN.
//
// Spec: 2.7.1.
func (r *reader) open(channel uint16, body []byte) error {
	var o wire.Open
	if err := o.Decode(body); err != nil {
		return err
	}
	if channel != 0 {
		return violation("open on channel %d", channel)
	}
	if o.MaxFrameSize < minMaxFrame {
		return violation("max-frame-size of %d octets", o.MaxFrameSize)
	}
	c := r.c
	c.mu.Lock()
	c.peer = Open{
		ContainerID: o.ContainerID,
		MaxFrame:    o.MaxFrameSize,
		ChannelMax:  o.ChannelMax,
		Idle:        time.Duration(o.IdleTimeout) * time.Millisecond,
		Properties:  goMap(o.Properties),
		Offered:     goStrings(o.OfferedCapabilities),
	}
	c.phase = PhaseRunning
	c.limit = min(c.limit, int(o.ChannelMax)+1)
	if n := c.opts.MaxSessions; n > 0 {
		c.limit = min(c.limit, n)
	}
	c.mu.Unlock()
	c.out.setFrameMax(o.MaxFrameSize)
	r.stage = stageRunning
	return c.feed(reencodeOpen(&o))
}

// close works off the peer's CLOSE. go-amqp answers it and closes; if it does not,
// the socket is closed after the linger.
//
// Spec: 2.7.9.
func (r *reader) close(body []byte) error {
	var p wire.Close
	if err := p.Decode(body); err != nil {
		return err
	}
	c := r.c
	c.lose(&PeerError{Performative: "close", Closed: true, Err: p.Error})
	r.stage = stageClosed
	close(c.peerGone)
	if err := c.nc.SetReadDeadline(time.Now().Add(c.opts.CloseLinger)); err != nil {
		return err
	}
	return c.feed(reencodeClose(&p))
}

// goMap turns an encoded map whose keys are text into a Go map. Other keys are
// left out.
func goMap(m wire.Map) map[string]any {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]any, len(m))
	for _, e := range m {
		switch k := e.Key.(type) {
		case wire.Symbol:
			out[string(k)] = e.Value
		case string:
			out[k] = e.Value
		}
	}
	return out
}

func goStrings(s []wire.Symbol) []string {
	if len(s) == 0 {
		return nil
	}
	out := make([]string, len(s))
	for i, v := range s {
		out[i] = string(v)
	}
	return out
}
