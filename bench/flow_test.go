package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlowSide_doesTheSameWork(t *testing.T) {
	ctx, url := startTestSource(t)
	for _, s := range []scenario{
		{name: "bytes", credit: 256, warm: 1, count: 10_000},
		{name: "json", credit: 10, json: true, warm: 1, count: 1_000},
		{name: "publish", publish: true, warm: 1, count: 1_000},
	} {
		t.Run(s.name, func(t *testing.T) {
			node := map[bool]string{false: nodeBytes, true: nodeJSON}[s.json]
			p, m := place{url: url, queue: node}, newMeter(s.warm, s.count)
			if s.publish {
				require.NoError(t, flowSide{}.publish(ctx, p, s, m))
			} else {
				require.NoError(t, flowSide{}.consume(ctx, p, s, m))
			}
			assert.Positive(t, m.sample().rate)
		})
	}
}
