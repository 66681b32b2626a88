package arena

// A wheel keeps dead blocks by the end of their leases, in slots of one tick each. A block is in the slot of the tick in which its lease
// ends, and comes out once that tick is over, so up to a tick late and never early.
type wheel struct {
	slots [][]Place
	tick  int64 // all slots up to this tick, exclusive, are empty
	count int
}

const (
	tickBits = 27 // a tick is 2^27 ns = 134 ms: leases are seconds
	// wheelSlots is how many ticks ahead a lease may end: 137 s, twice the longest lease. What ends later is looked at after one turn.
	wheelSlots = 1024
)

func (w *wheel) init() { w.slots = make([][]Place, wheelSlots) }

func (w *wheel) add(p Place, end, now int64) {
	if w.count == 0 {
		w.tick = max(w.tick, now>>tickBits)
	}
	at := min(max(end>>tickBits, w.tick), w.tick+wheelSlots-1)
	w.slots[at%wheelSlots] = append(w.slots[at%wheelSlots], p)
	w.count++
}

// next takes a block out whose lease is over by now.
func (w *wheel) next(now int64, lease func(Place) int64) (Place, bool) {
	for w.count > 0 && w.tick < now>>tickBits {
		slot := &w.slots[w.tick%wheelSlots]
		n := len(*slot)
		if n == 0 {
			w.tick++
			continue
		}
		p := (*slot)[n-1]
		*slot = (*slot)[:n-1]
		w.count--
		if end := lease(p); end > now {
			w.add(p, max(end, (w.tick+1)<<tickBits), now)
			continue
		}
		return p, true
	}
	return 0, false
}
