package override

import "flashdbm/internal/btree"

// payload estimates how many bytes the records of the tree have, from the leaves that flushes have written lately: their number is known, and
// so is what they take on average. Leaves that are written seldom hardly count, so it is an estimate only. Token held.
type payload struct {
	records int64
	bytes   int64 // of keys and values in leaves
	logged  int64 // of logged values
}

// payloadRecords is how many records the average is of: at least, once there were as many, and up to twice that. With more it follows a change of
// what is written later, with fewer it is less sure.
const payloadRecords = 1 << 16

// note counts the image of a leaf.
func (p *payload) note(body []byte) {
	records, bytes, logged := btree.LeafBytes(body)
	if p.records += int64(records); p.records > 2*payloadRecords {
		p.records, p.bytes, p.logged = p.records/2, p.bytes/2, p.logged/2
	}
	p.bytes += int64(bytes)
	p.logged += int64(logged)
}

// PayloadBytes returns roughly how many bytes the keys and values of the given number of records have in leaves, and their logged values; known is
// false before the first flush.
func (p *Pages) PayloadBytes(records int64) (inLeaves, logged int64, known bool) {
	if p.payload.records == 0 {
		return 0, 0, false
	}
	share := float64(records) / float64(p.payload.records)
	return int64(float64(p.payload.bytes) * share), int64(float64(p.payload.logged) * share), true
}
