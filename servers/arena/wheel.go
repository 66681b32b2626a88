package arena

// A wheel sorts dead blocks by the end of their leases, into slots of one tick each. A block is in the slot of the
// tick in which its lease ends, and is taken out once that tick is over: up to a tick late, never early.
type wheel struct {
	slots [][]Place
	tick  int64 // all slots before this tick are empty
	count int
}

const (
	tickBits = 27 // a tick is 2^27 ns = 134 ms; leases last seconds
	// wheelSlots is the number of ticks that the wheel covers: 137 s, twice the longest lease. A block whose lease
	// ends later is put back when its slot comes.
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

// next takes out a block whose lease has ended by now.
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
