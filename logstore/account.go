package logstore

// Account says what the segments of the file are for, in pages. The sum is what the file takes.
type Account struct {
	Live    int64 // pages that the newest tree uses, wherever they lie
	Log     int64 // others in segments written since where a scan from the newest checkpoint starts: redo, and what died meanwhile
	Sparse  int64 // others in older segments that have live ones
	Waiting int64 // segments without live pages: they wait for checkpoints,
	Named   int64 // for names in the table to go,
	Held    int64 // for readers to end
	Values  int64 // what is not live in segments of large values
	Free    int64 // may be written at once
	Leaving int64 // condemned, and not given back yet
}

// Account counts. No checkpoint is under way, or it may be off by what that sets free.
func (s *Store) Account() (a Account) {
	start := s.oldestStart()
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	size := int64(sp.segmentPages)
	for n := range sp.whole() {
		g := &sp.segments[n]
		live := int64(g.live)
		a.Live += live
		switch {
		case g.state == segmentAbsent:
			if _, ok := sp.leaving[n]; ok {
				a.Leaving += size
			}
		case n == sp.tail:
			a.Log += int64(sp.tailPage) - live
			a.Free += size - int64(sp.tailPage)
		case g.state == segmentFree || n == sp.successor:
			a.Free += size
		case g.state == segmentPrivate || g.sequence == 0:
			a.Values += size - live
		case g.written >= start:
			a.Log += size - live
		case live > 0:
			a.Sparse += size - live
		case sp.held(n):
			a.Held += size - sp.holesOf(n)
		case g.names > 0:
			a.Named += size
		default:
			a.Waiting += size
		}
	}
	return a
}
