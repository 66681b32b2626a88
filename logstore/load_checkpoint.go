package logstore

import (
	"encoding/binary"
	"fmt"
)

// readCheckpoint reads the stream of the newest checkpoint and returns the segments that hold it.
func (s *Store) readCheckpoint(sc *scanner, rec *Recovery) (map[uint32]bool, error) {
	sb := rec.super
	if err := sc.seek(sb.run); err != nil {
		return nil, err
	}
	segments := map[uint32]bool{}
	entered := []header{sc.header}
	var stream []byte
	for sc.group <= sb.runLast {
		g, ok, err := sc.next(func(h header) { entered = append(entered, h) })
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, s.pageError(sc.here(), "group %d of the newest checkpoint", sc.group)
		}
		if g.Kind != CheckpointGroup || g.Count != sb.runFirst {
			continue
		}
		for _, p := range g.Pages {
			segments[s.segmentOf(p.Addr)] = true
			if p.Kind == KindCheckpoint {
				n := len(entered) - 1
				for entered[n].segment != s.segmentOf(p.Addr) {
					n--
				}
				body, err := s.copied(p.Addr, 1, entered[n].salt) // it may have been written again since it was scanned
				if err != nil {
					return nil, err
				}
				stream = append(stream, body[MuxSize:]...)
			}
		}
	}
	table, spaceMap, err := splitStream(stream)
	if err == nil {
		err = s.space.Decode(spaceMap)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: newest checkpoint: %w", s.path, err)
	}
	rec.Table, rec.mapped = table, s.space.Adopt()
	for _, h := range entered { // opened after the map was taken
		if h.segment > s.space.Whole() {
			return nil, s.pageError(s.firstPage(h.segment), "the newest checkpoint lies far beyond what its map knows of the file")
		}
		h.group = max(h.group, sb.runLast)
		s.enter(h)
	}
	return segments, nil
}

func splitStream(stream []byte) (table, spaceMap []byte, err error) {
	if len(stream) >= streamHeader {
		n, m := binary.LittleEndian.Uint64(stream), binary.LittleEndian.Uint64(stream[8:])
		stream = stream[streamHeader:]
		if size := uint64(len(stream)); n <= size && m <= size-n {
			return stream[:n], stream[n : n+m], nil
		}
	}
	return nil, nil, fmt.Errorf("%w: lengths of the table and the space map", ErrCorrupt)
}

// runSegments returns the segments of the older superblock's checkpoint, as far as they can be read.
func (s *Store) runSegments(sc *scanner, sb *superblock) map[uint32]bool {
	segments := map[uint32]bool{sb.run.Segment: true}
	if sc.seek(sb.run) != nil {
		return segments
	}
	for sc.group <= sb.runLast {
		g, ok, err := sc.next(func(header) {})
		if err != nil || !ok {
			break
		}
		for _, p := range g.Pages {
			segments[s.segmentOf(p.Addr)] = true
		}
	}
	return segments
}
