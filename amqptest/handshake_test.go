package amqptest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// plain is a sasl-init with PLAIN credentials.
func plain(user, password string) []byte {
	return frameOf(wire.TypeSASL, 0, &wire.SASLInit{
		Mechanism: mechanismPlain, InitialResponse: []byte("\x00" + user + "\x00" + password),
	}, nil)
}

func TestServer_letsEveryoneInUnlessUsersIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for _, o := range []*amqp.ConnOptions{
			nil,
			{SASLType: amqp.SASLTypeAnonymous()},
			{SASLType: amqp.SASLTypePlain("someone", "anything")},
			{SASLType: amqp.SASLTypePlain("", "")},
		} {
			connect(t, s, o)
		}
	})
}

func TestServer_checksUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{Users: map[string]string{"alice": "secret", "bob": ""}})
		dial := func(o *amqp.ConnOptions) error {
			nc, err := s.Dial(t.Context())
			require.NoError(t, err)
			c, err := amqp.NewConn(t.Context(), nc, o)
			if err == nil {
				err = c.Close()
			}
			return err
		}
		require.NoError(t, dial(&amqp.ConnOptions{SASLType: amqp.SASLTypePlain("alice", "secret")}))
		require.NoError(t, dial(&amqp.ConnOptions{SASLType: amqp.SASLTypePlain("bob", "")}))
		for name, o := range map[string]*amqp.ConnOptions{
			"wrong password": {SASLType: amqp.SASLTypePlain("alice", "Secret")},
			"unknown user":   {SASLType: amqp.SASLTypePlain("carol", "")},
			"anonymous":      {SASLType: amqp.SASLTypeAnonymous()},
			"no SASL layer":  nil,
		} {
			began := time.Now()
			require.Error(t, dial(o), name)
			assert.LessOrEqual(t, time.Since(began), linger, name)
		}
	})
}

func TestServer_answersWrongCredentialsWithTheAuthCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{Users: map[string]string{"alice": "secret"}})
		r := dialRaw(t, s)
		r.header(wire.ProtoSASL)
		var m wire.SASLMechanisms
		require.NoError(t, m.Decode(r.await(wire.CodeSASLMechanisms)))
		assert.Equal(t, []wire.Symbol{"PLAIN"}, m.Mechanisms)
		r.bytes(plain("alice", "wrong"))
		var o wire.SASLOutcome
		require.NoError(t, o.Decode(r.await(wire.CodeSASLOutcome)))
		assert.EqualValues(t, 1, o.Code)
		assert.Nil(t, r.frame())
	})
}

func TestServer_takesAPipelinedOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		r := dialRaw(t, s)
		h := wire.ProtocolHeader(wire.ProtoSASL)
		b := append(h[:], plain("a", "b")...)
		h = wire.ProtocolHeader(wire.ProtoAMQP)
		b = append(b, h[:]...)
		b = append(b, frameOf(wire.TypeAMQP, 0, &wire.Open{ContainerID: "raw", MaxFrameSize: 512}, nil)...)
		b = append(b, frameOf(wire.TypeAMQP, 0, &wire.Begin{}, nil)...)
		b = append(b, frameOf(wire.TypeAMQP, 0, &wire.Close{}, nil)...)
		for i := range b { // byte by byte: frames may come in any pieces
			r.bytes(b[i : i+1])
		}
		r.await(wire.CodeOpen)
		r.await(wire.CodeBegin)
		r.await(wire.CodeClose)
		assert.Nil(t, r.frame())
	})
}

func TestServer_announcesItsOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{MaxFrameSize: 1000, ChannelMax: 3, HandleMax: 5, Window: 7, IdleTimeout: time.Minute})
		r := dialRaw(t, s).opened()
		var o wire.Open
		require.NoError(t, o.Decode(r.await(wire.CodeOpen)))
		assert.EqualValues(t, 1000, o.MaxFrameSize)
		assert.EqualValues(t, 3, o.ChannelMax)
		assert.EqualValues(t, 30_000, o.IdleTimeout, "half of it, section 2.4.5")
		assert.Equal(t, "amqptest", o.Properties.Get("product"))
		var b wire.Begin
		require.NoError(t, b.Decode(r.await(wire.CodeBegin)))
		assert.EqualValues(t, 5, b.HandleMax)
		assert.EqualValues(t, 7, b.IncomingWindow)
		assert.Equal(t, wire.Some(0), b.RemoteChannel)
		r.send(&wire.Close{})
		r.await(wire.CodeClose)
	})
}

func TestServer_keepsAClientAliveByHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Options{IdleTimeout: 10 * time.Second})
		ses := connect(t, s, &amqp.ConnOptions{IdleTimeout: 4 * time.Second})
		<-time.After(time.Hour)
		snd := sender(t, ses, "orders", nil)
		require.NoError(t, snd.Send(t.Context(), text("1"), nil))
	})
}

func TestServer_findsASilentClientAtIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(&Options{IdleTimeout: 10 * time.Second})
		r := dialRaw(t, s).opened()
		r.await(wire.CodeBegin)
		began := time.Now()
		var c wire.Close
		require.NoError(t, c.Decode(r.await(wire.CodeClose)))
		assert.Equal(t, 10*time.Second, time.Since(began))
		require.NotNil(t, c.Error)
		assert.EqualValues(t, amqp.ErrCondResourceLimitExceeded, c.Error.Condition)
		assertBroke(t, s.Close(), ruleIdle)
	})
}

func TestServer_closesWhereTheClientTakesNoFrameThatIsLargeEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil) // it is nobody's fault
		r := dialRaw(t, s)
		r.header(wire.ProtoAMQP)
		a := attachSender(0)
		a.Name = strings.Repeat("n", 1000)
		r.send(&wire.Open{ContainerID: "raw", MaxFrameSize: 512}, &wire.Begin{}, a)
		e := r.closed()
		require.NotNil(t, e)
		assert.EqualValues(t, amqp.ErrCondFrameSizeTooSmall, e.Condition)
		assert.LessOrEqual(t, r.largest, uint32(512))
	})
}
