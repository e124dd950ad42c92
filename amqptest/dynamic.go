package amqptest

import (
	"cmp"

	"github.com/Azure/go-amqp"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// lifetime says when a dynamic node is deleted: the code of its
// lifetime-policy. Spec: 3.5.10 to 3.5.13.
type lifetime uint64

const (
	deleteOnClose             lifetime = 0x2b // of the link that made it
	deleteOnNoLinks           lifetime = 0x2c
	deleteOnNoMessages        lifetime = 0x2d
	deleteOnNoLinksOrMessages lifetime = 0x2e
)

const lifetimePolicy wire.Symbol = "lifetime-policy"

// lifetimes are the symbolic descriptors.
var lifetimes = map[wire.Symbol]lifetime{
	"amqp:delete-on-close:list":                deleteOnClose,
	"amqp:delete-on-no-links:list":             deleteOnNoLinks,
	"amqp:delete-on-no-messages:list":          deleteOnNoMessages,
	"amqp:delete-on-no-links-or-messages:list": deleteOnNoLinksOrMessages,
}

// dynamicNode makes the node that a dynamic terminus of l asks for, and
// returns it with the properties that it has. Spec: 3.5.3, 3.5.9.
func (s *Server) dynamicNode(l *link, asked wire.Map, kind nodeKind) (*node, wire.Map, *wire.Error) {
	life, e := lifetimeOf(asked)
	if e != nil {
		return nil, nil, e
	}
	s.dynamics++
	n := s.makeNode(s.dialect.dynamicName(s.dynamics), cmp.Or(kind, kindQueue))
	n.owner, n.lifetime = l, life
	properties := wire.Map{{Key: lifetimePolicy, Value: wire.Described{Descriptor: uint64(life), Value: wire.List{}}}}
	return n, properties, nil
}

func lifetimeOf(asked wire.Map) (lifetime, *wire.Error) {
	switch v := asked.Get(lifetimePolicy).(type) {
	case nil:
		return deleteOnClose, nil
	case wire.Described:
		switch d := v.Descriptor.(type) {
		case uint64:
			if l := lifetime(d); l >= deleteOnClose && l <= deleteOnNoLinksOrMessages {
				return l, nil
			}
		case wire.Symbol:
			if l, known := lifetimes[d]; known {
				return l, nil
			}
		}
	}
	return 0, refusal(amqp.ErrCondInvalidField, "a lifetime-policy that does not exist")
}

// expire deletes a dynamic node whose time has come. left is the link that
// has just left it, nil if it is a message that has.
func (n *node) expire(left *link) {
	if n.owner == nil || n.srv.nodes[n.name] != n {
		return
	}
	over := false
	switch n.lifetime {
	case deleteOnClose:
		over = left == n.owner
	case deleteOnNoLinks:
		over = len(n.links) == 0
	case deleteOnNoMessages:
		over = n.owner.released && n.len() == 0
	case deleteOnNoLinksOrMessages:
		over = len(n.links) == 0 && n.len() == 0
	}
	if over {
		n.delete()
	}
}

// delete forgets the node and what waits in it, and closes the links that are
// still attached.
func (n *node) delete() {
	delete(n.srv.nodes, n.name)
	for len(n.links) > 0 {
		n.links[0].detach(refusal(amqp.ErrCondResourceDeleted, "the node was deleted"))
	}
	for _, q := range n.queues {
		q.drop()
	}
}
