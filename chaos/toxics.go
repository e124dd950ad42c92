package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// toxic proxy: latency, bandwidth, slices and silence.
type proxy struct {
	*toxiproxy.Proxy
}

// newProxy listens before a broker at host:port.
func newProxy(name, target string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, name, "127.0.0.1:0", target)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("toxiproxy: %w", err)
	}
	return &proxy{p}, nil
}

// poison adds a toxic in one direction: "upstream" is towards the broker.
func (p *proxy) poison(kind, stream string, attributes map[string]any) error {
	spec, err := json.Marshal(map[string]any{
		"name": kind + "-" + stream, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes,
	})
	if err != nil {
		return fmt.Errorf("toxiproxy: %w", err)
	}
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(string(spec))); err != nil {
		return fmt.Errorf("toxiproxy: %s: %w", kind, err)
	}
	return nil
}

// cure removes what poison added.
func (p *proxy) cure(ctx context.Context, kind, stream string) error {
	if err := p.Toxics.RemoveToxic(ctx, kind+"-"+stream); err != nil {
		return fmt.Errorf("toxiproxy: %s: %w", kind, err)
	}
	return nil
}

// trialOver is trial with a toxiproxy between relay and broker. prepare, if
// set, is called before the client connects.
func (b *battery) trialOver(ctx context.Context, name string, seed uint64, p peer, l load,
	prepare func(*trial, *proxy) error, f func(context.Context, *trial, *proxy) error,
) *result {
	target, err := hostOf(p.url())
	var x *proxy
	if err == nil {
		x, err = newProxy(name, target)
	}
	if err != nil {
		return failure(name, seed, p, err)
	}
	defer x.Stop()
	t, err := newTrial(ctx, name, seed, p, l, x.Listen)
	if err == nil && prepare != nil {
		err = prepare(t, x)
	}
	if err != nil {
		return failure(name, seed, p, err)
	}
	var faults faulter
	if f != nil {
		faults = func(ctx context.Context, t *trial) error { return f(ctx, t, x) }
	}
	return t.run(ctx, b.canary, faults)
}
