package amqpflow

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow/internal/wire"
)

// fakeCodec marks what went through it.
type fakeCodec struct{ name string }

func (c fakeCodec) ContentType() string { return c.name }

func (c fakeCodec) Append(dst []byte, v any) ([]byte, error) {
	return append(dst, c.name...), nil
}

func (c fakeCodec) Decode(data []byte, v any) error {
	switch p := v.(type) {
	case *order:
		p.Name = c.name + ":" + string(data)
	case **order:
		*p = &order{Name: c.name + ":" + string(data)}
	}
	return nil
}

type order struct{ Name string }

// received is a delivery with a body and a content type, without a link.
func received(contentType string, body []byte) *Delivery {
	s := &Subscription{addr: "orders"}
	d := &Delivery{from: &receiving{s: s}, data: body}
	if contentType != "" {
		section := (&wire.Properties{ContentType: contentType}).Append(nil)
		_, fields, err := wire.PeekDescriptor(section)
		if err != nil {
			panic(err)
		}
		d.props = fields
	}
	return d
}

func TestCodecs_chooseByContentType(t *testing.T) {
	cs := codecs{fakeCodec{"application/cbor"}, JSON(), fakeCodec{"application/xml"}}
	for contentType, want := range map[string]string{
		"":                                "application/cbor",
		"application/octet-stream":        "application/cbor",
		"text/plain":                      "application/cbor",
		"text/plain; charset=utf-8":       "application/cbor",
		"TEXT/PLAIN":                      "application/cbor",
		"application/cbor":                "application/cbor",
		"application/json":                "application/json",
		"application/json; charset=utf-8": "application/json",
		"Application/JSON ;charset=utf-8": "application/json",
		" application/xml ":               "application/xml",
		"application/cloudevents+json":    "application/json",
		"application/problem+json;x=y":    "application/json",
	} {
		got := cs.find([]byte(contentType))
		if assert.NotNil(t, got, "%q", contentType) {
			assert.Equal(t, want, got.ContentType(), "%q", contentType)
		}
	}
	for _, contentType := range []string{"application/avro", "image/png", "application/json5", "application/soap+xml", "json"} {
		assert.Nil(t, cs.find([]byte(contentType)), "%q", contentType)
	}
	assert.Nil(t, codecs{fakeCodec{"application/cbor"}}.find([]byte("application/x+json")), "there is no JSON codec")
}

func TestCodecs_check(t *testing.T) {
	require.NoError(t, codecs{JSON(), fakeCodec{"application/cbor"}}.check())
	for _, cs := range []codecs{
		{nil},
		{JSON(), nil},
		{JSON(), JSON()},
		{JSON(), fakeCodec{"APPLICATION/JSON; charset=utf-8"}},
		{fakeCodec{""}},
		{fakeCodec{" ; q=1"}},
	} {
		assert.Error(t, cs.check(), "%v", cs)
	}
}

func TestDecodeBody_bytesPassNoCodec(t *testing.T) {
	never := codecs{failingCodec{}}
	d := received("image/png", []byte("raw"))
	var b []byte
	require.NoError(t, decodeBody(never, d, &b))
	assert.Equal(t, "raw", string(b))
	var s string
	require.NoError(t, decodeBody(never, d, &s))
	assert.Equal(t, "raw", s)
	var m json.RawMessage
	require.NoError(t, decodeBody(never, d, &m))
	assert.Equal(t, "raw", string(m))
}

type failingCodec struct{}

var errCodec = errors.New("codec failed")

func (failingCodec) ContentType() string                { return "application/fail" }
func (failingCodec) Append([]byte, any) ([]byte, error) { return nil, errCodec }
func (failingCodec) Decode(data []byte, v any) error    { return errCodec }

func TestDecodeBody_byContentType(t *testing.T) {
	cs := codecs{JSON(), fakeCodec{"application/cbor"}}
	var v order
	require.NoError(t, decodeBody(cs, received("", []byte(`{"Name":"a"}`)), &v))
	assert.Equal(t, "a", v.Name)
	require.NoError(t, decodeBody(cs, received("application/cbor", []byte("x")), &v))
	assert.Equal(t, "application/cbor:x", v.Name)
	var p *order
	require.NoError(t, decodeBody(cs, received("application/x+json; v=1", []byte(`{"Name":"b"}`)), &p))
	assert.Equal(t, "b", p.Name)
}

func TestDecodeBody_failureIsADecodeError(t *testing.T) {
	cs := codecs{JSON()}
	for _, tc := range []struct {
		name string
		d    *Delivery
		is   error
	}{
		{"no codec", received("image/png", []byte("x")), errNoCodec},
		{"empty body", received("application/json", nil), errEmptyBody},
		{"empty body without a type", received("", []byte{}), errEmptyBody},
		{"bad JSON", received("application/json", []byte("{")), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var v order
			err := decodeBody(cs, tc.d, &v)
			var decode *DecodeError
			require.ErrorAs(t, err, &decode)
			assert.Equal(t, Address("orders"), decode.Address)
			assert.Equal(t, tc.d.ContentType(), decode.ContentType)
			require.Error(t, decode.Err)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
			assert.Contains(t, err.Error(), `amqpflow: decode `)
			assert.Contains(t, err.Error(), `"orders"`)
		})
	}
	var v order
	err := decodeBody(codecs{failingCodec{}}, received("", []byte("x")), &v)
	assert.ErrorIs(t, err, errCodec, "the codec's own error stays in the chain")
}

func TestDecodeBody_emptyBodyIsTheNilOfATypeThatHasOne(t *testing.T) {
	cs := codecs{JSON()}
	d := received("", nil)
	var p *order
	require.NoError(t, decodeBody(cs, d, &p))
	assert.Nil(t, p)
	var m map[string]any
	require.NoError(t, decodeBody(cs, d, &m))
	assert.Nil(t, m)
	var a any
	require.NoError(t, decodeBody(cs, d, &a))
	assert.Nil(t, a)
	var n int
	assert.Error(t, decodeBody(cs, d, &n))
}

func TestJSON_appendsBehindWhatIsThere(t *testing.T) {
	out, err := JSON().Append([]byte("head"), order{Name: "a"})
	require.NoError(t, err)
	assert.Equal(t, `head{"Name":"a"}`, string(out))
	_, err = JSON().Append(nil, make(chan int))
	assert.Error(t, err)
	assert.Equal(t, "application/json", JSON().ContentType())
}
