//go:build race

package dataplane

// modelSize makes model tests a tenth as long: the race detector is slow.
func modelSize(n int) int { return n / 10 }
