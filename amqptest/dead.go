package amqptest

// The reasons for which a message becomes a dead letter, as RabbitMQ calls
// them.
const (
	diedRejected = "rejected"
	diedLimit    = "delivery_limit"
	diedExpired  = "expired"
	diedPushed   = "maxlen"
)

// bury makes m, which is in none of its queues, a dead letter of n, and gives a
// copy to the queue that n has for them.
func (n *node) bury(m *message, reason string) {
	n.dead = append(n.dead, m)
	name := n.settings.deadLetter
	if reason == diedExpired {
		name = n.settings.expiry
	}
	if name == "" || name == n.name {
		return
	}
	grave := n.srv.dialect.grave(n.srv, name)
	if grave == nil {
		return
	}
	c := *m
	c.expires, c.due, c.refusedBy = 0, 0, nil
	c.header.TTL, c.header.HasTTL = 0, false
	n.srv.dialect.mark(n, &c, reason)
	grave.isGrave = true
	grave.store(&c)
}

// expendable says whether what waits in n is dead letters that nobody takes,
// for which no test waits.
func (n *node) expendable() bool {
	return n.isGrave && len(n.queues) == 1 && len(n.queues[0].links) == 0
}

// failed says whether m has been delivered as often as it may be.
func (n *node) failed(m *message) bool {
	limit := n.settings.maxDeliveries
	return limit > 0 && int64(m.header.DeliveryCount) >= int64(limit)
}
