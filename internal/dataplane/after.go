package dataplane

// after is what has to be done when the locks are free: channels to close, links
// to notify, the writer to wake. A function that holds a lock adds to it; whoever
// took the lock runs it once it is released.
type after struct {
	close  []chan struct{}
	done   []*Receipt
	notify []*Link
	wake   bool
	arm    bool
}

func (a *after) run(c *Conn) {
	for _, ch := range a.close {
		close(ch)
	}
	for _, r := range a.done {
		r.resolve()
	}
	for _, l := range a.notify {
		token(l.noticed)
	}
	if a.arm {
		c.out.arm()
	}
	if a.wake {
		c.out.rouse()
	}
}
