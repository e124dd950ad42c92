package amqptest

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow"
	"github.com/amqpflow/amqpflow/internal/wire"
)

// RefuseTCP refuses a connection: Dial returns an error that is
// syscall.ECONNREFUSED, and one that a listener has accepted is reset before
// anything is read. After counts connections that are let through.
func RefuseTCP() Fault {
	return Fault{kind: faultRefuseTCP, times: 1}
}

// RefuseSASL answers a client's sasl-init by an outcome with that code: 1 for
// credentials that are not accepted, 2 for a system error, 3 for one that stays,
// 4 for one that goes away. After counts sasl-inits that are let through.
//
// Spec: 5.3.3.6.
func RefuseSASL(code uint8) Fault {
	return Fault{kind: faultRefuseSASL, code: code, times: 1}
}

// HangUpSASL closes the socket right after a client's sasl-init, as some
// brokers do instead of an answer. After counts sasl-inits that are let
// through.
func HangUpSASL() Fault {
	return Fault{kind: faultHangUpSASL, times: 1}
}

// RefuseOpen answers OPEN by OPEN and CLOSE, with a condition and a description,
// or with none if both are "". After counts OPENs that are let through.
//
// Spec: 2.4.1.
func RefuseOpen(cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultRefuseOpen, cond: cond, text: description, times: 1}
}

// RefuseBegin answers BEGIN by BEGIN and END, with a condition and a
// description, or with none if both are "". After counts BEGINs that are let
// through.
//
// Spec: 2.5.1.
func RefuseBegin(cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultRefuseBegin, cond: cond, text: description, times: 1}
}

// RefuseAttach refuses an attach to addr, in either direction, with a condition
// and a description, or with none if both are "": the answer has no terminus,
// and a closing detach follows. After counts attaches to addr that are let
// through.
//
// Spec: 2.6.3.
func RefuseAttach(addr amqpflow.Address, cond amqp.ErrCond, description string) Fault {
	return Fault{kind: faultRefuseAttach, addr: addr, cond: cond, text: description, times: 1}
}

var errRefused = fmt.Errorf("amqptest: dial: %w", syscall.ECONNREFUSED)

// refuseTCP resets nc if a fault wants that.
func (c *conn) refuseTCP() error {
	if !c.srv.ignores(subject{conn: c}, faultRefuseTCP) {
		return nil
	}
	c.abort()
	c.closeRaw()
	return errRefused
}

// refused says whether a listener goes on after err.
func refused(err error) bool { return errors.Is(err, errRefused) }

// refuseSASL refuses the client's sasl-init if a fault wants that.
func (c *conn) refuseSASL() bool {
	f := c.srv.happens(subject{conn: c}, faultRefuseSASL, faultHangUpSASL)
	if f == nil {
		return false
	}
	c.srv.perform(f, func() {
		switch {
		case c.dead:
		case f.kind == faultRefuseSASL:
			c.writeSASL(&wire.SASLOutcome{Code: f.code})
			c.shut(nil)
		default:
			c.hangUp(c.written())
		}
	})
	return true
}

// refuseOpen closes the connection after its OPEN if a fault wants that.
func (c *conn) refuseOpen() {
	if f := c.srv.happens(subject{conn: c}, faultRefuseOpen); f != nil {
		c.srv.perform(f, func() { c.shut(f.error) })
	}
}

// refuseBegin ends the session after its BEGIN if a fault wants that.
func (ses *session) refuseBegin() {
	if f := ses.conn.srv.happens(ses.subject(), faultRefuseBegin); f != nil {
		ses.conn.srv.perform(f, func() {
			if !ses.ended && ses.conn.sessions[ses.in] == ses {
				ses.end(f.error)
			}
		})
	}
}

// refuseAttach refuses the link if a fault wants that. A delay is one of the
// detach: the answer without terminus comes at once.
func (l *link) refuseAttach(a *wire.Attach) bool {
	s := l.ses.conn.srv
	on := l.subject()
	switch {
	case l.role == wire.RoleSender && a.Source != nil:
		on.node = a.Source.Address
	case l.role == wire.RoleReceiver && a.Target != nil:
		on.node = a.Target.Address
	}
	f := s.happens(on, faultRefuseAttach)
	if f == nil {
		return false
	}
	l.replyRefused(a)
	s.perform(f, func() {
		if l.ses.links[l.in] == l && !l.detached {
			l.detach(f.error)
		}
	})
	return true
}
