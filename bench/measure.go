package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// meter times one run of one side. Any goroutine may tick; one alone records
// latencies.
type meter struct {
	warm, count int64
	seen        atomic.Int64
	start       reading
	end         reading
	latencies   []time.Duration
	started     chan struct{} // closed by the tick that starts the clock, when start is set
	done        chan struct{} // closed by the tick that ends the run, when end is set
}

// newMeter makes a meter that starts after warm messages and ends count
// messages later.
func newMeter(warm, count int) *meter {
	return &meter{warm: int64(warm), count: int64(count), started: make(chan struct{}), done: make(chan struct{})}
}

// tick counts one message whose work is done.
func (m *meter) tick() {
	switch m.seen.Add(1) {
	case m.warm:
		m.start = readAtStart()
		close(m.started)
	case m.warm + m.count:
		m.end = readAtEnd()
		close(m.done)
	}
}

// time records the latency of one message and counts it. Messages of the
// warm-up are counted only.
func (m *meter) time(begun time.Time) {
	if m.seen.Load() >= m.warm {
		m.latencies = append(m.latencies, time.Since(begun))
	}
	m.tick()
}

// keepLatencies reserves room, so that recording allocates nothing.
func (m *meter) keepLatencies() { m.latencies = make([]time.Duration, 0, m.count) }

// sample turns the two readings into figures for one message. It waits for
// the end of the run.
func (m *meter) sample() sample {
	<-m.started
	<-m.done
	n := float64(m.count)
	s := sample{
		rate:   n / m.end.wall.Sub(m.start.wall).Seconds(),
		cpu:    float64(m.end.cpu-m.start.cpu) / n,
		allocs: float64(m.end.allocs-m.start.allocs) / n,
		bytes:  float64(m.end.bytes-m.start.bytes) / n,
	}
	if len(m.latencies) > 0 {
		slices.Sort(m.latencies)
		s.p50 = float64(percentile(m.latencies, 50))
		s.p99 = float64(percentile(m.latencies, 99))
	}
	return s
}

// sample is what one timed run of one side showed.
type sample struct {
	rate          float64 // messages a second
	cpu           float64 // nanoseconds of this process a message
	allocs, bytes float64 // a message
	p50, p99      float64 // nanoseconds; 0 if the scenario has no latency
}

// reading is the state of this process at one end of a timed run.
type reading struct {
	wall          time.Time
	cpu           time.Duration
	allocs, bytes uint64
}

// readAtStart reads the memory statistics first: that stops the world, which
// must not be inside the timed run.
func readAtStart() reading {
	var r reading
	r.readMemory()
	r.cpu = cpuTime()
	r.wall = time.Now()
	return r
}

// readAtEnd reads in the opposite order, for the same reason.
func readAtEnd() reading {
	r := reading{wall: time.Now(), cpu: cpuTime()}
	r.readMemory()
	return r
}

func (r *reading) readMemory() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.allocs, r.bytes = m.Mallocs, m.TotalAlloc
}

// cpuTime is the user and system time this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are constants: it cannot fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
