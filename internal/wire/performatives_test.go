package wire

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// performative is what every performative and SASL frame body does.
type performative interface {
	Decode(body []byte) error
	Append(dst []byte) []byte
}

// fresh returns a zero value of p's type.
func fresh(p performative) performative {
	return reflect.New(reflect.TypeOf(p).Elem()).Interface().(performative)
}

var (
	long = strings.Repeat("x", 300)

	fullSource = Source{
		Address: "orders", HasAddress: true, Durable: DurableUnsettledState, ExpiryPolicy: ExpireNever, Timeout: 60, Dynamic: true,
		DynamicNodeProperties: Map{{Symbol("lifetime-policy"), Described{uint64(0x2b), List{}}}},
		DistributionMode:      "copy", Filter: Map{{Symbol("f"), Described{Symbol("apache.org:selector-filter:string"), "a = 1"}}},
		DefaultOutcome: &State{Kind: StateModified, DeliveryFailed: true},
		Outcomes:       []Symbol{"amqp:accepted:list", "amqp:released:list"}, Capabilities: []Symbol{"queue"},
	}
	fullTarget = Target{
		Address: "orders", HasAddress: true, Durable: DurableConfiguration, ExpiryPolicy: ExpireLinkDetach, Timeout: 1, Dynamic: true,
		DynamicNodeProperties: Map{{Symbol("k"), "v"}}, Capabilities: []Symbol{"queue", "topic"},
	}
	errNotFound = &Error{Condition: "amqp:not-found", Description: "no such queue", Info: Map{{Symbol("queue"), "q"}}}
)

// samples have a full, a minimal and a long instance of every type.
var samples = map[string]struct {
	p    performative
	wire string // golden octets, where short enough to check against the standard by eye
}{
	"open": {&Open{ContainerID: "c", MaxFrameSize: math.MaxUint32, ChannelMax: math.MaxUint16}, "00 53 10 c0 04 01 a1 01 'c'"},
	"open full": {&Open{
		ContainerID: "c", Hostname: "h", MaxFrameSize: 512, ChannelMax: 9, IdleTimeout: 30000,
		OutgoingLocales: []Symbol{"en-US"}, IncomingLocales: []Symbol{"en-US", "de"},
		OfferedCapabilities: []Symbol{"ANONYMOUS-RELAY"}, DesiredCapabilities: []Symbol{"x"},
		Properties: Map{{Symbol("product"), "p"}, {Symbol("n"), int32(-1)}},
	}, ""},
	"open channel-max": {&Open{MaxFrameSize: 512, ChannelMax: 9}, "00 53 10 c0 0c 04 a1 00 40 70 00 00 02 00 60 00 09"},
	"open long":        {&Open{ContainerID: long, MaxFrameSize: 1, Properties: Map{{Symbol(long), long}}}, ""},

	"begin": {&Begin{NextOutgoingID: 0, IncomingWindow: 5000, OutgoingWindow: 1, HandleMax: math.MaxUint32}, "00 53 11 c0 0a 04 40 43 70 00 00 13 88 52 01"},
	"begin full": {&Begin{
		RemoteChannel: Some(0xffff), NextOutgoingID: math.MaxUint32, IncomingWindow: 1, OutgoingWindow: 2, HandleMax: 255,
		OfferedCapabilities: []Symbol{"a"}, DesiredCapabilities: []Symbol{"b"}, Properties: Map{{Symbol("k"), nil}},
	}, ""},

	"attach": {&Attach{Name: "l", Role: RoleReceiver, SndSettleMode: SndMixed}, "00 53 12 c0 06 03 a1 01 'l' 43 41"},
	"attach full": {&Attach{
		Name: "l", Handle: 7, Role: RoleSender, SndSettleMode: SndSettled, RcvSettleMode: RcvSecond, Source: &fullSource, Target: &fullTarget,
		Unsettled: Map{{[]byte("tag"), nil}}, IncompleteUnsettled: true, InitialDeliveryCount: Some(0), MaxMessageSize: 1 << 40,
		OfferedCapabilities: []Symbol{"a"}, DesiredCapabilities: []Symbol{"b"}, Properties: Map{{Symbol("k"), "v"}},
	}, ""},
	"attach bare termini": {
		&Attach{Name: "l", SndSettleMode: SndMixed, Source: &Source{}, Target: &Target{HasAddress: true}},
		"00 53 12 c0 14 07 a1 01 'l' 43 42 40 40 00 53 28 45 00 53 29 c0 03 01 a1 00",
	},
	"attach coordinator": {
		&Attach{Name: "l", SndSettleMode: SndUnsettled, Coordinator: &Coordinator{Capabilities: []Symbol{"amqp:local-transactions"}}}, "",
	},

	"flow": {&Flow{IncomingWindow: 1, NextOutgoingID: 2, OutgoingWindow: 3}, "00 53 13 c0 08 04 40 52 01 52 02 52 03"},
	"flow full": {&Flow{
		NextIncomingID: Some(1), IncomingWindow: 1 << 31, NextOutgoingID: 3, OutgoingWindow: 4, Handle: Some(0), DeliveryCount: Some(5),
		LinkCredit: Some(100), Available: Some(0), Drain: true, Echo: true, Properties: []byte{0xc1, 1, 0},
	}, "00 53 13 c0 17 0b 52 01 70 80 00 00 00 52 03 52 04 43 52 05 52 64 43 41 41 c1 01 00"},

	"transfer": {&Transfer{Handle: 1}, "00 53 14 c0 03 01 52 01"},
	"transfer usual": {
		&Transfer{DeliveryID: Some(300), DeliveryTag: []byte{9}, MessageFormat: Some(0), HasSettled: true},
		"00 53 14 c0 0c 05 43 70 00 00 01 2c a0 01 09 43 42",
	},
	"transfer full": {&Transfer{
		Handle: math.MaxUint32, DeliveryID: Some(0), DeliveryTag: []byte{}, MessageFormat: Some(1 << 31), Settled: true, HasSettled: true, More: true,
		RcvSettleMode: Some(1), State: State{Kind: StateAccepted}, Resume: true, Aborted: true, Batchable: true,
	}, "00 53 14 c0 19 0b 70 ffffffff 43 a0 00 70 80 00 00 00 41 41 50 01 00 53 24 45 41 41 41"},
	"transfer long": {&Transfer{DeliveryTag: []byte(long), State: State{Kind: StateRejected, Error: errNotFound}}, ""},

	"disposition": {
		&Disposition{Role: RoleReceiver, First: 1, Last: 9, Settled: true, State: State{Kind: StateAccepted}},
		"00 53 15 c0 0b 05 41 52 01 52 09 41 00 53 24 45",
	},
	"disposition one": {&Disposition{First: 1, Last: 1}, "00 53 15 c0 04 02 42 52 01"},
	"disposition full": {&Disposition{
		Role: RoleSender, First: 5, Last: 0, State: State{Kind: StateModified, Annotations: Map{{Symbol(long), long}}}, Batchable: true,
	}, ""},

	"detach":      {&Detach{Handle: 1}, "00 53 16 c0 03 01 52 01"},
	"detach full": {&Detach{Handle: 0, Closed: true, Error: errNotFound}, ""},
	"end":         {&End{}, "00 53 17 45"},
	"end error":   {&End{Error: &Error{Condition: "amqp:internal-error"}}, "00 53 17 c0 1c 01 00 53 1d c0 16 01 a3 13 'amqp:internal-error'"},
	"close":       {&Close{}, "00 53 18 45"},
	"close error": {&Close{Error: errNotFound}, ""},

	"mechanisms":      {&SASLMechanisms{Mechanisms: []Symbol{"PLAIN", "ANONYMOUS"}}, "00 53 40 c0 15 01 e0 12 02 a3 05 'PLAIN' 09 'ANONYMOUS'"},
	"mechanisms none": {&SASLMechanisms{Mechanisms: []Symbol{}}, "00 53 40 c0 05 01 e0 02 00 a3"},
	"mechanisms long": {&SASLMechanisms{Mechanisms: []Symbol{"a", Symbol(long)}}, ""},
	"init":            {&SASLInit{Mechanism: "ANONYMOUS"}, "00 53 41 c0 0c 01 a3 09 'ANONYMOUS'"},
	"init full":       {&SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00u\x00p"), Hostname: "h"}, "00 53 41 c0 11 03 a3 05 'PLAIN' a0 04 00 'u' 00 'p' a1 01 'h'"},
	"init empty":      {&SASLInit{Mechanism: "X", InitialResponse: []byte{}}, "00 53 41 c0 06 02 a3 01 'X' a0 00"},
	"challenge":       {&SASLChallenge{Challenge: []byte{}}, "00 53 42 c0 03 01 a0 00"},
	"challenge long":  {&SASLChallenge{Challenge: []byte(long)}, ""},
	"response":        {&SASLResponse{Response: []byte("r")}, "00 53 43 c0 04 01 a0 01 'r'"},
	"outcome":         {&SASLOutcome{Code: SASLAuth}, "00 53 44 c0 03 01 50 01"},
	"outcome full":    {&SASLOutcome{Code: SASLOK, AdditionalData: []byte("v=")}, "00 53 44 c0 07 02 50 00 a0 02 'v='"},
}

func TestPerformatives_roundTrip(t *testing.T) {
	for name, s := range samples {
		t.Run(name, func(t *testing.T) {
			out := s.p.Append([]byte("before"))
			require.Equal(t, "before", string(out[:6]))
			body := out[6:]
			if s.wire != "" {
				assert.Equal(t, octets(t, s.wire), body)
			}
			// Decode overwrites whatever was there.
			got := fresh(s.p)
			for _, other := range samples {
				if reflect.TypeOf(other.p) == reflect.TypeOf(s.p) {
					require.NoError(t, got.Decode(other.p.Append(nil)))
				}
			}
			require.NoError(t, got.Decode(body))
			if tr, ok := got.(*Transfer); ok {
				assert.Empty(t, tr.Payload)
				tr.Payload = nil
			}
			assert.Equal(t, s.p, got)
		})
	}
}

func TestPerformatives_everyDescriptorForm(t *testing.T) {
	names := map[uint64]string{}
	for code := range uint64(0x50) {
		for _, n := range []string{"open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close",
			"sasl-mechanisms", "sasl-init", "sasl-challenge", "sasl-response", "sasl-outcome"} {
			if codeOf([]byte("amqp:"+n+":list")) == code {
				names[code] = "amqp:" + n + ":list"
			}
		}
	}
	for name, s := range samples {
		body := s.p.Append(nil)
		code := body[2]
		symbolic := append([]byte{0, fmtSym8, byte(len(names[uint64(code)]))}, names[uint64(code)]...)
		for _, d := range [][]byte{{0, fmtUlong, 0, 0, 0, 0, 0, 0, 0, code}, symbolic} {
			got := fresh(s.p)
			require.NoError(t, got.Decode(append(d, body[3:]...)), name)
			assert.Equal(t, body, got.Append(nil), name)
		}
		malformedInput(t, fresh(s.p).Decode(append([]byte{0, fmtSmallUlong, 0x1f}, body[3:]...)), name)
	}
}

func TestPerformatives_truncatedAtEveryOctet(t *testing.T) {
	for name, s := range samples {
		body := s.p.Append(nil)
		for n := range body {
			malformedInput(t, fresh(s.p).Decode(body[:n:n]), "%s cut to %d", name, n)
		}
	}
}

// A changed octet is an error or another performative, never a panic.
func TestPerformatives_anyOctetChanged(t *testing.T) {
	for name, s := range samples {
		got := fresh(s.p)
		if strings.HasSuffix(name, " long") {
			continue // mostly text, where a change changes nothing
		}
		mutations(s.p.Append(nil), func(b []byte) {
			if err := got.Decode(b); err != nil {
				require.ErrorIs(t, err, ErrMalformed, name)
				return
			}
			require.NoError(t, fresh(s.p).Decode(got.Append(nil)), "%s from %x", name, b)
		})
	}
}

func TestPerformatives_refuseWhatFollows(t *testing.T) {
	for name, s := range samples {
		err := fresh(s.p).Decode(append(s.p.Append(nil), 0x40))
		if _, ok := s.p.(*Transfer); ok {
			require.NoError(t, err)
			continue
		}
		malformedInput(t, err, name)
	}
}

func TestPerformatives_refuseAFieldTooMany(t *testing.T) {
	for p, n := range map[performative]int{
		&Open{}: 10, &Begin{}: 8, &Attach{}: 14, &Flow{}: 11, &Transfer{}: 11, &Disposition{}: 6, &Detach{}: 3, &End{}: 1, &Close{}: 1,
		&SASLMechanisms{}: 1, &SASLInit{}: 3, &SASLChallenge{}: 1, &SASLResponse{}: 1, &SASLOutcome{}: 2,
	} {
		for _, s := range samples {
			if reflect.TypeOf(s.p) != reflect.TypeOf(p) {
				continue
			}
			v, _, err := DecodeValue(s.p.Append(nil))
			require.NoError(t, err)
			d := v.(Described)
			l := d.Value.(List)
			for len(l) < n {
				l = append(l, nil)
			}
			body, err := AppendValue(nil, Described{d.Descriptor, l})
			require.NoError(t, err)
			require.NoError(t, fresh(p).Decode(body), "%T with all fields", p)

			body, err = AppendValue(nil, Described{d.Descriptor, append(l, nil)})
			require.NoError(t, err)
			err = fresh(p).Decode(body)
			malformedInput(t, err)
			assert.ErrorContains(t, err, "1 fields too many", "%T", p)
		}
	}
}

func TestPerformatives_mandatoryFields(t *testing.T) {
	for in, p := range map[string]performative{
		"00 53 10 45":                   &Open{},
		"00 53 10 c0 02 01 40":          &Open{},
		"00 53 11 c0 04 03 40 43 43":    &Begin{},
		"00 53 11 c0 05 04 40 43 40 43": &Begin{},
		"00 53 12 c0 03 02 40 43":       &Attach{},
		"00 53 12 c0 05 03 a1 00 40 41": &Attach{},
		"00 53 12 c0 04 02 a1 00 43":    &Attach{},
		"00 53 13 45":                   &Flow{},
		"00 53 13 c0 05 04 43 40 43 43": &Flow{},
		"00 53 13 c0 05 04 43 43 40 43": &Flow{},
		"00 53 13 c0 04 03 43 43 43":    &Flow{},
		"00 53 14 45":                   &Transfer{},
		"00 53 14 c0 03 02 40 43":       &Transfer{},
		"00 53 15 45":                   &Disposition{},
		"00 53 15 c0 02 01 41":          &Disposition{},
		"00 53 15 c0 03 02 40 43":       &Disposition{},
		"00 53 16 45":                   &Detach{},
		"00 53 17 c0 05 01 00 53 1d 45": &End{}, // an error without condition
		"00 53 40 45":                   &SASLMechanisms{},
		"00 53 41 45":                   &SASLInit{},
		"00 53 42 45":                   &SASLChallenge{},
		"00 53 43 45":                   &SASLResponse{},
		"00 53 44 45":                   &SASLOutcome{},
	} {
		err := p.Decode(octets(t, in))
		malformedInput(t, err, in)
		assert.ErrorContains(t, err, "mandatory field is absent", in)
	}
}

func TestPerformatives_fieldsOfAWrongType(t *testing.T) {
	for in, p := range map[string]performative{
		"10 | a3 00":                                                    &Open{},        // container-id symbol
		"10 | a1 00 | 40 | 44":                                          &Open{},        // max-frame-size ulong
		"10 | a1 00 | 40 | 40 | 52 01":                                  &Open{},        // channel-max uint
		"10 | a1 00 | 40 | 40 | 40 | 40 | a1 00":                        &Open{},        // locale string
		"10 | a1 00 | 40 | 40 | 40 | 40 | e0 03 01 a1 00":               &Open{},        // locales array of strings
		"10 | a1 00 | 40 | 40 | 40 | 40 | e0 05 01 00 40 a3 00":         &Open{},        // locales array of described symbols
		"10 | a1 00 | 40 | 40 | 40 | 40 | 40 | 40 | 40 | 40 | 45":       &Open{},        // properties list
		"11 | 43 | 43 | 43 | 43":                                        &Begin{},       // remote-channel uint
		"12 | a1 00 | 43 | 50 01":                                       &Attach{},      // role ubyte
		"12 | a1 00 | 43 | 41 | 50 03":                                  &Attach{},      // snd-settle-mode 3
		"12 | a1 00 | 43 | 41 | 40 | 50 02":                             &Attach{},      // rcv-settle-mode 2
		"12 | a1 00 | 43 | 41 | 40 | 40 | 00 53 29 45":                  &Attach{},      // a target as source
		"12 | a1 00 | 43 | 41 | 40 | 40 | 40 | 00 53 28 45":             &Attach{},      // a source as target
		"12 | a1 00 | 43 | 41 | 40 | 40 | 00 53 28 c0 03 01 a0 00":      &Attach{},      // source address binary
		"12 | a1 00 | 43 | 41 | 40 | 40 | 40 | 00 53 29 c0 03 01 53 01": &Attach{},      // target address ulong
		"12 | a1 00 | 43 | 41 | 40 | 40 | 45":                           &Attach{},      // source without descriptor
		"14 | 44":                                                       &Transfer{},    // handle ulong
		"14 | 43 | 43 | a1 01 61":                                       &Transfer{},    // tag string
		"14 | 43 | 40 | 40 | 40 | 50 01":                                &Transfer{},    // settled ubyte
		"14 | 43 | 40 | 40 | 40 | 40 | 40 | 50 02":                      &Transfer{},    // rcv-settle-mode 2
		"14 | 43 | 40 | 40 | 40 | 40 | 40 | 40 | 45":                    &Transfer{},    // state a list
		"14 | 43 | 40 | 40 | 40 | 56 02":                                &Transfer{},    // boolean 2
		"15 | 41 | a1 00":                                               &Disposition{}, // first string
		"13 | 40 | 43 | 43 | 43 | 40 | 40 | 40 | 40 | 40 | 40 | 45":     &Flow{},        // properties list
		"16 | 43 | 40 | 45":                                             &Detach{},      // error a list
		"44 | 52 00":                                                    &SASLOutcome{}, // code uint
	} {
		err := p.Decode(composite(t, in))
		malformedInput(t, err, in)
		assert.NotContains(t, err.Error(), "ends in the middle", in)
		assert.NotContains(t, err.Error(), "behind", in)
	}
}

func TestOpen_defaultsOfAbsentFields(t *testing.T) {
	var o Open
	require.NoError(t, o.Decode(octets(t, "00 53 10 c0 03 01 a1 00")))
	assert.Equal(t, Open{MaxFrameSize: math.MaxUint32, ChannelMax: math.MaxUint16}, o)
	var b Begin
	require.NoError(t, b.Decode(octets(t, "00 53 11 c0 05 04 40 43 43 43")))
	assert.Equal(t, Begin{HandleMax: math.MaxUint32}, b)
	var a Attach
	require.NoError(t, a.Decode(octets(t, "00 53 12 c0 05 03 a1 00 43 42")))
	assert.Equal(t, Attach{SndSettleMode: SndMixed}, a)
}

func TestOpen_readsOneSymbolWhereManyMayStand(t *testing.T) {
	var o Open
	require.NoError(t, o.Decode(composite(t, "10 | a1 00 | 40 | 40 | 40 | 40 | a3 02 'en' | e0 02 00 b3")))
	assert.Equal(t, []Symbol{"en"}, o.OutgoingLocales)
	assert.Equal(t, []Symbol{}, o.IncomingLocales)
}

func TestTransfer_payloadAndTagAliasTheFrame(t *testing.T) {
	body := (&Transfer{DeliveryTag: []byte("tag")}).Append(nil)
	n := len(body)
	body = append(body, "payload"...)
	var tr Transfer
	require.NoError(t, tr.Decode(body))
	assert.Equal(t, "payload", string(tr.Payload))
	assert.Same(t, &body[n], &tr.Payload[0])
	assert.Equal(t, "tag", string(tr.DeliveryTag))
}

func TestTransfer_booleanInTwoOctets(t *testing.T) {
	var tr Transfer
	require.NoError(t, tr.Decode(composite(t, "14 | 43 | 40 | 40 | 40 | 56 01 | 56 01")))
	assert.True(t, tr.Settled)
	assert.True(t, tr.HasSettled)
	assert.True(t, tr.More)
}

func TestError_text(t *testing.T) {
	require.EqualError(t, errNotFound, "amqp:not-found: no such queue")
	require.EqualError(t, &Error{Condition: "amqp:not-found"}, "amqp:not-found")
}

func TestOpen_leavesOffPropertiesThatHaveNoEncoding(t *testing.T) {
	o := Open{ContainerID: "c", MaxFrameSize: math.MaxUint32, ChannelMax: math.MaxUint16, Properties: Map{{"k", struct{}{}}}}
	assert.Equal(t, octets(t, "00 53 10 c0 04 01 a1 01 'c'"), o.Append(nil))
}

func TestRole_string(t *testing.T) {
	assert.Equal(t, "sender", RoleSender.String())
	assert.Equal(t, "receiver", RoleReceiver.String())
}
