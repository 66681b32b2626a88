package logstore

import (
	"encoding/binary"
	"fmt"
	"maps"
)

// partPages is the most pages of background work written between two syncs: fdatasync waits for all dirty pages of
// the file.
const partPages = 64

const streamHeader = 16

// A Checkpoint writes the translation table and the space map into the log and moves the scan start. It follows a
// complete flush. While it is in progress the table does not change, because there is no flush and no page group.
// Its parts are ordinary groups between other groups:
//
//	stream: length of the table u64 | length of the space map u64 | table | space map
//
// The caller calls WritePart with the right to append until it reports done, then Finish without that right.
type Checkpoint struct {
	s        *Store
	stream   []byte
	first    uint64 // number of the group with the first part
	run      Position
	start    Position
	startAt  uint64
	segments map[uint32]bool
	last     uint64
	part     int // limit of the pages of a part
}

// BeginCheckpoint copies the space map as it is now. table is the caller's encoded table.
func (s *Store) BeginCheckpoint(table []byte) *Checkpoint {
	stream := append(make([]byte, streamHeader), table...)
	stream = s.space.Encode(stream)
	binary.LittleEndian.PutUint64(stream, uint64(len(table)))
	binary.LittleEndian.PutUint64(stream[8:], uint64(len(stream)-streamHeader-len(table)))
	return &Checkpoint{s: s, stream: stream, segments: map[uint32]bool{}, part: partPages}
}

// Pages returns the number of pages that the rest of the checkpoint takes; they are reserved before it starts.
func (c *Checkpoint) Pages() int64 { return int64(len(c.stream)+BodySize-1) / BodySize }

// LimitPart limits parts to n pages. The caller calls it before the first WritePart.
func (c *Checkpoint) LimitPart(n int) { c.part = min(n, partPages) }

// WritePart appends up to 64 pages of the checkpoint as a group.
func (c *Checkpoint) WritePart() (done bool, err error) {
	s := c.s
	g := s.Begin(CheckpointGroup)
	n := min(len(c.stream), c.part*BodySize)
	g.Write(KindCheckpoint, c.stream[:n])
	c.stream = c.stream[n:]
	if c.first == 0 {
		c.first, c.run = g.Number(), g.start()
	}
	for i := range g.pages {
		c.segments[s.segmentOf(g.pages[i].addr)] = true
	}
	if c.last, err = g.Commit(c.first); err != nil || len(c.stream) > 0 {
		return false, err
	}
	c.start, c.startAt = s.position(), s.appended.Load()
	if len(s.sinceBase) > 0 {
		c.start, c.startAt = s.sinceBase[0].at, s.sinceBase[0].appended
	}
	return true, nil
}

// Finish makes the checkpoint the newest one: sync, superblock, sync. Afterwards the segments that it frees may be reused.
func (c *Checkpoint) Finish() error {
	s := c.s
	if err := s.Sync(); err != nil {
		return err
	}
	sb := &superblock{segmentPages: s.segmentPages, incompatible: s.features.wanted.Load(), uuid: s.uuid, number: s.newestNumber() + 1, run: c.run, runFirst: c.first, runLast: c.last, start: c.start, lineage: s.lineage}
	if err := s.writeSuperblock(sb); err != nil {
		return err
	}
	s.supers[sb.number%2] = sb
	s.features.stated.Store(sb.incompatible)
	s.startAt.Store(c.startAt)
	s.space.Checkpointed(sb.inSpace(maps.Clone(c.segments)))
	return nil
}

// newest returns the newer one of the valid superblocks, or nil while there is none.
func (s *Store) newest() *superblock {
	a, b := s.supers[0], s.supers[1]
	if a == nil || b != nil && b.number > a.number {
		return b
	}
	return a
}

func (s *Store) newestNumber() uint64 {
	if newest := s.newest(); newest != nil {
		return newest.number
	}
	return 0
}

// writeSuperblock writes a superblock into its slot and syncs it.
func (s *Store) writeSuperblock(sb *superblock) error {
	page := make([]byte, PageSize)
	sb.put(page)
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(page, int64(sb.number%2)*PageSize); err != nil {
		return s.fail(fmt.Errorf("flashdbm: write superblock of %s: %w", s.path, err))
	}
	return s.datasync()
}
