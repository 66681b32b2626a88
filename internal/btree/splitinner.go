package btree

import "fmt"

// splitInner makes one node of the entries, or several if one is not enough. It returns the first; the others go on
// the stack of pieces. As with leaves, the pieces get equal shares, unless ascending is set: then all but the last
// are full.
func (a *applier) splitInner(level int, entries []entry, ascending bool) (first Node, err error) {
	if !ordered(entries) {
		return Node{}, fmt.Errorf("%w: separators of level %d are out of order", ErrMalformed, level)
	}
	if innerSize(entries) <= BodySize {
		return a.buildInner(level, entries), nil
	}
	prefix := sharedPrefix(entries)
	room, left := splitRoom(prefix), 0
	for i := range entries {
		left += entrySize(&entries[i], prefix)
	}
	for from := 0; from < len(entries); {
		want := room
		if !ascending {
			pieces := (left + room - 1) / room
			want = (left + pieces - 1) / pieces
		}
		to, size := from, 0
		for ; to < len(entries); to++ {
			s := entrySize(&entries[to], prefix)
			if to > from && (size+s > room || size+s/2 > want) {
				break
			}
			size += s
		}
		v := a.buildInner(level, entries[from:to])
		if from == 0 {
			first = v
		} else {
			a.pieces = append(a.pieces, piece{entries[from].separator, v})
		}
		left -= size
		from = to
	}
	return first, nil
}

// splitRoom returns the bytes that the entries of a piece may take, counted with the common prefix of the whole. If
// the piece's own prefix is d bytes longer, it stores d bytes more once, and saves at least d-headBytes in each of
// at least two tails. So a piece needs at most the prefix and headBytes in addition to what was counted. (A piece
// of two children has no prefix, and room in any case.)
func splitRoom(prefix int) int { return roomBytes - prefix - headBytes }
