package wire

import "testing"

func BenchmarkTransfer_decode(b *testing.B) {
	t := Transfer{Handle: 0, DeliveryID: Some(123456), DeliveryTag: []byte{1, 2, 3, 4}, MessageFormat: Some(0), HasSettled: true}
	body := append(t.Append(nil), make([]byte, 512)...)
	b.ReportAllocs()
	for b.Loop() {
		if err := t.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTransfer_append(b *testing.B) {
	t := Transfer{Handle: 0, DeliveryID: Some(123456), DeliveryTag: []byte{1, 2, 3, 4}, MessageFormat: Some(0)}
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = t.Append(buf[:0])
	}
}

func BenchmarkDisposition_decode(b *testing.B) {
	d := Disposition{Role: RoleReceiver, First: 1000, Last: 1020, Settled: true, State: State{Kind: StateAccepted}}
	body := d.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDisposition_append(b *testing.B) {
	d := Disposition{Role: RoleReceiver, First: 1000, Last: 1020, Settled: true, State: State{Kind: StateAccepted}}
	buf := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		buf = d.Append(buf[:0])
	}
}

func BenchmarkFlow_decode(b *testing.B) {
	p := Flow{NextIncomingID: Some(1000), IncomingWindow: 1 << 31, NextOutgoingID: 1, OutgoingWindow: 5000,
		Handle: Some(0), DeliveryCount: Some(1000), LinkCredit: Some(100)}
	body := p.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSections_parse(b *testing.B) {
	plain := (&Header{Durable: true}).Append(nil)
	plain = AppendData(plain, make([]byte, 512))
	rich := (&Header{Durable: true}).Append(nil)
	rich = (&Properties{MessageID: "0123456789", ContentType: "application/json", CorrelationID: uint64(7), GroupID: "g"}).Append(rich)
	rich, err := AppendSection(rich, CodeApplicationProperties, Map{{"tenant", "blue"}, {"attempt", int32(3)}, {"weight", 1.5}, {"flag", true}})
	if err != nil {
		b.Fatal(err)
	}
	rich = AppendData(rich, make([]byte, 512))
	for name, payload := range map[string][]byte{"plain": plain, "rich": rich} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var s Sections
			for b.Loop() {
				if err := s.Parse(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
