package wire

// Error is why a peer gave something up. It is a Go error.
//
// Spec: 2.8.14.
type Error struct {
	Condition   Symbol
	Description string // empty if absent
	Info        Map
}

// Error returns "condition: description", or the condition alone.
func (e *Error) Error() string {
	if e.Description == "" {
		return string(e.Condition)
	}
	return string(e.Condition) + ": " + e.Description
}

func (e *Error) append(dst []byte) []byte {
	w := beginList(dst, CodeError)
	w.symbol(e.Condition)
	w.ifString(e.Description)
	w.ifMap(e.Info)
	return w.end()
}

// error reads an error, nil if it is absent.
func (f *fields) error() *Error {
	b := f.value()
	if b == nil {
		return nil
	}
	var g fields
	if err := g.openWhole("error", CodeError, b); err != nil {
		f.fail(err)
		return nil
	}
	var e Error
	var ok bool
	e.Condition, ok = g.symbol()
	g.must(ok)
	e.Description, _ = g.string()
	e.Info = g.mapping()
	if err := g.end(); err != nil {
		f.fail(err)
		return nil
	}
	return &e
}

// Detach detaches a link from its session.
//
// Spec: 2.7.7.
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error // nil if absent
}

// Decode overwrites d with the detach in body. It returns an error if body is
// anything else, or if the handle is absent.
func (d *Detach) Decode(body []byte) error {
	*d = Detach{}
	var f fields
	if err := f.openWhole("detach", CodeDetach, body); err != nil {
		return err
	}
	d.Handle = f.uint32Must()
	d.Closed = f.isTrue()
	d.Error = f.error()
	return f.end()
}

// Append appends the descriptor and list of d.
func (d *Detach) Append(dst []byte) []byte {
	w := beginList(dst, CodeDetach)
	w.uint32(d.Handle)
	w.ifTrue(d.Closed)
	w.ifError(d.Error)
	return w.end()
}

// End ends a session.
//
// Spec: 2.7.8.
type End struct{ Error *Error }

// Decode overwrites e with the end in body. It returns an error if body is
// anything else.
func (e *End) Decode(body []byte) error {
	*e = End{}
	var f fields
	if err := f.openWhole("end", CodeEnd, body); err != nil {
		return err
	}
	e.Error = f.error()
	return f.end()
}

// Append appends the descriptor and list of e.
func (e *End) Append(dst []byte) []byte {
	w := beginList(dst, CodeEnd)
	w.ifError(e.Error)
	return w.end()
}

// Close closes a connection.
//
// Spec: 2.7.9.
type Close struct{ Error *Error }

// Decode overwrites c with the close in body. It returns an error if body is
// anything else.
func (c *Close) Decode(body []byte) error {
	*c = Close{}
	var f fields
	if err := f.openWhole("close", CodeClose, body); err != nil {
		return err
	}
	c.Error = f.error()
	return f.end()
}

// Append appends the descriptor and list of c.
func (c *Close) Append(dst []byte) []byte {
	w := beginList(dst, CodeClose)
	w.ifError(c.Error)
	return w.end()
}
