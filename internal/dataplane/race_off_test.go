//go:build !race

package dataplane

// modelSize is how long a model test runs.
func modelSize(n int) int { return n }
