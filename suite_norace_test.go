//go:build !race

package amqpflow_test

// stormSize is how many publishes the storm has.
const stormSize = 10_000
