package amqptest

import (
	"testing"
	"testing/synctest"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func TestServer_refusesWhatItDoesNotHave(t *testing.T) {
	for name, test := range map[string]struct {
		cond   amqp.ErrCond
		attach func(a *wire.Attach)
	}{
		"durable topic": {amqp.ErrCondNotImplemented, func(a *wire.Attach) {
			a.Source.Capabilities, a.Source.Durable = []wire.Symbol{"topic"}, 2
		}},
		"topic that never expires": {amqp.ErrCondNotImplemented, func(a *wire.Attach) {
			a.Source.Capabilities, a.Source.ExpiryPolicy = []wire.Symbol{"topic"}, wire.ExpireNever
		}},
		"durable dynamic source": {amqp.ErrCondNotImplemented, func(a *wire.Attach) { *a.Source = wire.Source{Dynamic: true, Durable: 1} }},
		"shared subscription":    {amqp.ErrCondNotImplemented, func(a *wire.Attach) { a.Source.Capabilities = []wire.Symbol{"topic", "shared"} }},
		"global subscription":    {amqp.ErrCondNotImplemented, func(a *wire.Attach) { a.Source.Capabilities = []wire.Symbol{"topic", "global"} }},
		"selector by name":       {amqp.ErrCondNotImplemented, filtering(wire.Symbol("apache.org:selector-filter:string"))},
		"selector by code":       {amqp.ErrCondNotImplemented, filtering(uint64(0x468c00000004))},
		"unknown lifetime": {amqp.ErrCondInvalidField, func(a *wire.Attach) {
			*a.Source = wire.Source{Dynamic: true, DynamicNodeProperties: wire.Map{{Key: wire.Symbol("lifetime-policy"), Value: "for ever"}}}
		}},
		"empty address":     {amqp.ErrCondInvalidField, func(a *wire.Attach) { a.Source.Address = "" }},
		"no address":        {amqp.ErrCondInvalidField, func(a *wire.Attach) { *a.Source = wire.Source{} }},
		"no source":         {amqp.ErrCondInvalidField, func(a *wire.Attach) { a.Source = nil }},
		"empty target":      {amqp.ErrCondInvalidField, func(a *wire.Attach) { toSender(a); *a.Target = wire.Target{HasAddress: true} }},
		"no target":         {amqp.ErrCondInvalidField, func(a *wire.Attach) { toSender(a); a.Target = nil }},
		"coordinator":       {amqp.ErrCondNotImplemented, func(a *wire.Attach) { toSender(a); a.Target, a.Coordinator = nil, &wire.Coordinator{} }},
		"a queue and topic": {amqp.ErrCondNotImplemented, func(a *wire.Attach) { a.Source.Capabilities = []wire.Symbol{"queue", "topic"} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				a := attachReceiver(0)
				test.attach(a)
				r := dialRaw(t, s).opened()
				r.send(a)
				var answer wire.Attach
				require.NoError(t, answer.Decode(r.await(wire.CodeAttach)))
				assert.Equal(t, a.Name, answer.Name)
				assert.Equal(t, !a.Role, answer.Role)
				if a.Role == wire.RoleReceiver {
					assert.Nil(t, answer.Source)
				} else {
					assert.Nil(t, answer.Target)
					assert.Nil(t, answer.Coordinator)
				}
				d := r.awaitDetach()
				assert.True(t, d.Closed)
				require.NotNil(t, d.Error)
				assert.EqualValues(t, test.cond, d.Error.Condition)
				r.send(&wire.Detach{Closed: true})
				r.receiving(1) // the handle is free again
				require.NoError(t, answer.Decode(r.await(wire.CodeAttach)))
				assert.NotNil(t, answer.Source)
				r.send(&wire.Close{})
				r.await(wire.CodeClose)
			})
		})
	}
}

func filtering(descriptor any) func(a *wire.Attach) {
	return func(a *wire.Attach) {
		a.Source.Filter = wire.Map{{Key: wire.Symbol("mine"), Value: wire.Described{Descriptor: descriptor, Value: "a = 1"}}}
	}
}

func toSender(a *wire.Attach) { *a = *attachSender(0) }

func TestServer_refusesInWordsThatGoAMQPPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		ses := connect(t, s, nil)
		_, err := ses.NewReceiver(t.Context(), "prices", &amqp.ReceiverOptions{SourceCapabilities: []string{"topic", "shared"}})
		var e *amqp.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, amqp.ErrCondNotImplemented, e.Condition)
		_, err = ses.NewReceiver(t.Context(), "", nil)
		require.ErrorAs(t, err, &e)
		assert.Equal(t, amqp.ErrCondInvalidField, e.Condition)
		snd := sender(t, ses, "orders", nil)
		require.NoError(t, snd.Send(t.Context(), text("0"), nil), "the session lives on")
	})
}

func TestServer_answersADetachAsItWasMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s).opened().sending()
		for _, closed := range []bool{false, true} {
			r.send(&wire.Detach{Closed: closed})
			assert.Equal(t, wire.Detach{Closed: closed}, r.awaitDetach())
			r.sending()
		}
		r.send(&wire.End{})
		r.await(wire.CodeEnd)
		r.send(&wire.Begin{IncomingWindow: 10})
		r.await(wire.CodeBegin)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_appliesNoFilterAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		rcv, err := connect(t, s, nil).NewReceiver(t.Context(), "orders", &amqp.ReceiverOptions{
			Filters: []amqp.LinkFilter{amqp.NewLinkFilter("apache.org:no-local-filter:list", 0x468c00000003, []any{})},
		})
		require.NoError(t, err)
		assert.Nil(t, rcv.LinkSourceFilterValue("apache.org:no-local-filter:list"))
	})
}

func TestServer_carriesManySessionsAndLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		c, _ := connectBoth(t, s, nil)
		for i := range 40 {
			ses, err := c.NewSession(t.Context(), nil)
			require.NoError(t, err)
			for range 20 {
				snd := sender(t, ses, "orders", nil)
				if i%2 == 0 {
					require.NoError(t, snd.Close(t.Context()))
				}
			}
			if i%4 == 0 {
				require.NoError(t, ses.Close(t.Context()))
			}
		}
		assert.Len(t, s.nodes["orders"].links, 400)
	})
}
