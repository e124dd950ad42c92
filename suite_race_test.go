//go:build race

package amqpflow_test

// stormSize is how many publishes the storm has: a tenth where each step costs
// ten times as much.
const stormSize = 1_000
