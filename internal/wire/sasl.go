package wire

// SASL outcome codes.
//
// Spec: 5.3.3.6.
const (
	SASLOK      uint8 = 0
	SASLAuth    uint8 = 1 // the credentials were not accepted
	SASLSys     uint8 = 2 // system error
	SASLSysPerm uint8 = 3 // system error that will not heal by itself
	SASLSysTemp uint8 = 4 // system error that may
)

// SASLMechanisms offers the server's mechanisms.
//
// Spec: 5.3.3.1.
type SASLMechanisms struct{ Mechanisms []Symbol }

// Decode overwrites m with the frame body. It returns an error if body is
// anything else, or if the list of mechanisms is absent.
func (m *SASLMechanisms) Decode(body []byte) error {
	*m = SASLMechanisms{}
	var f fields
	if err := f.openWhole("sasl-mechanisms", CodeSASLMechanisms, body); err != nil {
		return err
	}
	m.Mechanisms = f.symbols()
	f.must(m.Mechanisms != nil)
	return f.end()
}

// Append appends the descriptor and list of m.
func (m *SASLMechanisms) Append(dst []byte) []byte {
	w := beginList(dst, CodeSASLMechanisms)
	w.field()
	w.dst = AppendSymbols(w.dst, m.Mechanisms)
	return w.end()
}

// SASLInit chooses a mechanism.
//
// Spec: 5.3.3.2.
type SASLInit struct {
	Mechanism       Symbol
	InitialResponse []byte // nil if absent
	Hostname        string // empty if absent
}

// Decode overwrites i with the frame body. It returns an error if body is
// anything else, or if the mechanism is absent.
func (i *SASLInit) Decode(body []byte) error {
	*i = SASLInit{}
	var f fields
	if err := f.openWhole("sasl-init", CodeSASLInit, body); err != nil {
		return err
	}
	var ok bool
	i.Mechanism, ok = f.symbol()
	f.must(ok)
	i.InitialResponse, _ = f.binaryCopy()
	i.Hostname, _ = f.string()
	return f.end()
}

// Append appends the descriptor and list of i.
func (i *SASLInit) Append(dst []byte) []byte {
	w := beginList(dst, CodeSASLInit)
	w.symbol(i.Mechanism)
	w.ifBinary(i.InitialResponse)
	w.ifString(i.Hostname)
	return w.end()
}

// SASLChallenge is one step of the server's.
//
// Spec: 5.3.3.3.
type SASLChallenge struct{ Challenge []byte }

// Decode overwrites c with the frame body. It returns an error if body is
// anything else, or if the challenge is absent.
func (c *SASLChallenge) Decode(body []byte) (err error) {
	*c = SASLChallenge{}
	c.Challenge, err = decodeSASLBytes("sasl-challenge", CodeSASLChallenge, body)
	return err
}

// Append appends the descriptor and list of c.
func (c *SASLChallenge) Append(dst []byte) []byte {
	w := beginList(dst, CodeSASLChallenge)
	w.binary(c.Challenge)
	return w.end()
}

// SASLResponse answers a challenge.
//
// Spec: 5.3.3.4.
type SASLResponse struct{ Response []byte }

// Decode overwrites r with the frame body. It returns an error if body is
// anything else, or if the response is absent.
func (r *SASLResponse) Decode(body []byte) (err error) {
	*r = SASLResponse{}
	r.Response, err = decodeSASLBytes("sasl-response", CodeSASLResponse, body)
	return err
}

// Append appends the descriptor and list of r.
func (r *SASLResponse) Append(dst []byte) []byte {
	w := beginList(dst, CodeSASLResponse)
	w.binary(r.Response)
	return w.end()
}

func decodeSASLBytes(name string, code uint64, body []byte) ([]byte, error) {
	var f fields
	if err := f.openWhole(name, code, body); err != nil {
		return nil, err
	}
	b, ok := f.binaryCopy()
	f.must(ok)
	return b, f.end()
}

// SASLOutcome is how the dialogue ended.
//
// Spec: 5.3.3.5.
type SASLOutcome struct {
	Code           uint8
	AdditionalData []byte // nil if absent
}

// Decode overwrites o with the frame body. It returns an error if body is
// anything else, or if the code is absent.
func (o *SASLOutcome) Decode(body []byte) error {
	*o = SASLOutcome{}
	var f fields
	if err := f.openWhole("sasl-outcome", CodeSASLOutcome, body); err != nil {
		return err
	}
	var ok bool
	o.Code, ok = f.uint8()
	f.must(ok)
	o.AdditionalData, _ = f.binaryCopy()
	return f.end()
}

// Append appends the descriptor and list of o.
func (o *SASLOutcome) Append(dst []byte) []byte {
	w := beginList(dst, CodeSASLOutcome)
	w.uint8(o.Code)
	w.ifBinary(o.AdditionalData)
	return w.end()
}
