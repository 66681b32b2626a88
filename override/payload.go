package override

import "flashdbm/internal/btree"

// payload estimates how many bytes the records of the tree have: it is the average over the leaves that flushes
// have written lately, times the number of records. Leaves that are seldom written hardly count. Token held.
type payload struct {
	records int64
	bytes   int64 // of keys and values in leaves
	logged  int64 // of logged values
}

// payloadRecords is the number of records over which the average is taken: between this many and twice as many,
// once there were so many. With a larger value the estimate follows a change of the load later; with a smaller
// one it varies more.
const payloadRecords = 1 << 16

// note counts the records of a leaf; body is the leaf's image without its mux area.
func (p *payload) note(body []byte) {
	records, bytes, logged := btree.LeafBytes(body)
	if p.records += int64(records); p.records > 2*payloadRecords {
		p.records, p.bytes, p.logged = p.records/2, p.bytes/2, p.logged/2
	}
	p.bytes += int64(bytes)
	p.logged += int64(logged)
}

// PayloadBytes returns roughly how many bytes the keys and values of the given number of records have in
// leaves, and how many their logged values have. known is false before a flush has written a leaf.
func (p *Pages) PayloadBytes(records int64) (inLeaves, logged int64, known bool) {
	if p.payload.records == 0 {
		return 0, 0, false
	}
	share := float64(records) / float64(p.payload.records)
	return int64(float64(p.payload.bytes) * share), int64(float64(p.payload.logged) * share), true
}
