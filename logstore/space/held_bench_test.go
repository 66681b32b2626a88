package space

import "testing"

// BenchmarkHeld measures the segments that HeldBytes looks at under one hold of the mutex, all of them dead and
// in the lifetime of a snapshot.
func BenchmarkHeld(b *testing.B) {
	sp := New(256, 0, nil)
	sp.extendTo(heldAtOnce)
	sp.pages = heldAtOnce * 256
	sp.snapshots = []uint64{50, 100}
	for n := range sp.segments {
		sp.segments[n] = segment{state: segmentUsed, birth: 10, death: 60}
	}
	for b.Loop() {
		if held, _ := sp.heldFrom(0); held == 0 {
			b.Fatal("nothing is held")
		}
	}
}
