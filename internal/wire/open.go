package wire

import "math"

// Open negotiates a connection.
//
// Spec: 2.7.1.
type Open struct {
	ContainerID         string
	Hostname            string // empty if absent
	MaxFrameSize        uint32 // octets; absent: 1<<32 - 1
	ChannelMax          uint16 // absent: 65535
	IdleTimeout         uint32 // milliseconds; 0 if absent
	OutgoingLocales     []Symbol
	IncomingLocales     []Symbol
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Decode overwrites o with the open in body. It returns an error if body is
// anything else, or if the container id is absent.
func (o *Open) Decode(body []byte) error {
	*o = Open{ChannelMax: math.MaxUint16}
	var f fields
	if err := f.openWhole("open", CodeOpen, body); err != nil {
		return err
	}
	var ok bool
	o.ContainerID, ok = f.string()
	f.must(ok)
	o.Hostname, _ = f.string()
	o.MaxFrameSize = f.uint32Or(math.MaxUint32)
	if v, ok := f.uint16(); ok {
		o.ChannelMax = v
	}
	o.IdleTimeout = f.uint32Or(0)
	o.OutgoingLocales = f.symbols()
	o.IncomingLocales = f.symbols()
	o.OfferedCapabilities = f.symbols()
	o.DesiredCapabilities = f.symbols()
	o.Properties = f.mapping()
	return f.end()
}

// Append appends the descriptor and list of o. Properties that [AppendValue]
// refuses are left off.
func (o *Open) Append(dst []byte) []byte {
	w := beginList(dst, CodeOpen)
	w.string(o.ContainerID)
	w.ifString(o.Hostname)
	w.uint32Unless(o.MaxFrameSize, math.MaxUint32)
	if o.ChannelMax == math.MaxUint16 {
		w.skip()
	} else {
		w.uint16(o.ChannelMax)
	}
	w.uint32Unless(o.IdleTimeout, 0)
	w.ifSymbols(o.OutgoingLocales)
	w.ifSymbols(o.IncomingLocales)
	w.ifSymbols(o.OfferedCapabilities)
	w.ifSymbols(o.DesiredCapabilities)
	w.ifMap(o.Properties)
	return w.end()
}

// Begin opens a session on a channel.
//
// Spec: 2.7.2.
type Begin struct {
	// RemoteChannel is the channel this begin answers; its value fits 16 bits.
	RemoteChannel       OptUint32
	NextOutgoingID      uint32
	IncomingWindow      uint32
	OutgoingWindow      uint32
	HandleMax           uint32 // absent: 1<<32 - 1
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Decode overwrites b with the begin in body. It returns an error if body is
// anything else, or if a mandatory field is absent.
func (b *Begin) Decode(body []byte) error {
	*b = Begin{}
	var f fields
	if err := f.openWhole("begin", CodeBegin, body); err != nil {
		return err
	}
	if v, ok := f.uint16(); ok {
		b.RemoteChannel = Some(uint32(v))
	}
	b.NextOutgoingID = f.uint32Must()
	b.IncomingWindow = f.uint32Must()
	b.OutgoingWindow = f.uint32Must()
	b.HandleMax = f.uint32Or(math.MaxUint32)
	b.OfferedCapabilities = f.symbols()
	b.DesiredCapabilities = f.symbols()
	b.Properties = f.mapping()
	return f.end()
}

// Append appends the descriptor and list of b. Properties that [AppendValue]
// refuses are left off.
func (b *Begin) Append(dst []byte) []byte {
	w := beginList(dst, CodeBegin)
	if b.RemoteChannel.Set {
		w.uint16(uint16(b.RemoteChannel.Value))
	} else {
		w.skip()
	}
	w.uint32(b.NextOutgoingID)
	w.uint32(b.IncomingWindow)
	w.uint32(b.OutgoingWindow)
	w.uint32Unless(b.HandleMax, math.MaxUint32)
	w.ifSymbols(b.OfferedCapabilities)
	w.ifSymbols(b.DesiredCapabilities)
	w.ifMap(b.Properties)
	return w.end()
}
