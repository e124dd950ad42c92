package amqptest

// show lets l, which takes nothing, see what it has not seen.
// Spec: 3.5.8 (distribution-mode copy).
func (q *queue) show(l *link) {
	for l.ready() {
		i := q.peek(l)
		if i < 0 {
			return
		}
		m := q.waiting[i]
		if !l.takes(m) {
			return
		}
		l.next = m.seq + 1
		l.deliver(m)
	}
}
