package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/amqpflow/amqpflow/internal/wire"
)

func frameOf(channel uint16, append_ func([]byte) []byte) []byte {
	b := wire.BeginFrame(nil, wire.TypeAMQP, channel)
	b = append_(b)
	wire.EndFrame(b, 0)
	return b
}

func TestSplitter_findsFramesWhereverTheyAreCut(t *testing.T) {
	header := wire.ProtocolHeader(wire.ProtoAMQP)
	var stream []byte
	stream = append(stream, header[:]...)
	stream = append(stream, frameOf(0, (&wire.Open{ContainerID: "c"}).Append)...)
	stream = append(stream, frameOf(0, func(b []byte) []byte { return b })...) // a sign of life
	stream = append(stream, frameOf(3, (&wire.End{}).Append)...)
	for cut := 1; cut < len(stream); cut++ {
		s := splitter{dir: out}
		var codes []uint64
		var channels []uint16
		see := func(f frame, _ int) bool {
			codes, channels = append(codes, f.code), append(channels, f.channel)
			return false
		}
		s.push(stream[:cut], see)
		s.push(stream[cut:], see)
		assert.Equal(t, []uint64{0, wire.CodeOpen, 0, wire.CodeEnd}, codes)
		assert.Equal(t, []uint16{0, 0, 0, 3}, channels)
	}
}

func TestMeter_countsWhatIsUnsettledOnASession(t *testing.T) {
	m := newMeter()
	see := func(dir direction, channel uint16, append_ func([]byte) []byte) {
		s := splitter{dir: dir}
		s.push(frameOf(channel, append_), func(f frame, _ int) bool { m.see(f); return false })
	}
	transfer := func(id uint32, settled bool) *wire.Transfer {
		return &wire.Transfer{Handle: 9, DeliveryID: wire.Some(id), DeliveryTag: []byte("t"), Settled: settled, HasSettled: true}
	}
	see(out, 1, (&wire.Begin{}).Append)
	see(in, 5, (&wire.Begin{RemoteChannel: wire.Some(1)}).Append)
	see(out, 1, (&wire.Attach{Name: "l", Handle: 2, Role: wire.RoleReceiver}).Append)
	see(in, 5, (&wire.Attach{Name: "l", Handle: 9, Role: wire.RoleSender}).Append)
	for id := range uint32(4) {
		see(in, 5, transfer(id, false).Append)
	}
	see(in, 5, transfer(4, true).Append)
	assert.Equal(t, 4, m.most)
	see(out, 1, (&wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 2, Settled: true}).Append)
	see(in, 5, transfer(5, false).Append)
	assert.Equal(t, 4, m.most)
	assert.Len(t, m.client[1].unsettled, 2)
	see(out, 1, (&wire.Detach{Handle: 2, Closed: true}).Append)
	assert.Empty(t, m.client[1].unsettled)
}

func TestSteps_areTwentyFiveAndTellFramesApart(t *testing.T) {
	assert.Len(t, steps, 25)
	attach := frameOf(0, (&wire.Attach{Name: "l", Role: wire.RoleSender}).Append)
	for _, dir := range []direction{out, in} {
		s := splitter{dir: dir}
		s.push(attach, func(f frame, _ int) bool {
			var names []string
			for _, step := range steps {
				if step.matches(f) {
					names = append(names, step.name)
				}
			}
			want := map[direction]string{out: "attach sender", in: "attach receiver back"}[dir]
			assert.Equal(t, []string{want}, names)
			return false
		})
	}
}
