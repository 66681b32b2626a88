package btree

// sharedPrefix returns how many leading bytes the separators of all entries but the first share: the prefix of a
// node with these entries.
func sharedPrefix(entries []entry) int {
	if len(entries) < 3 {
		return 0
	}
	return commonPrefix(entries[1].bytes, entries[len(entries)-1].bytes)
}

// ordered reports whether the separators of all entries but the first ascend.
func ordered(entries []entry) bool {
	for i := 2; i < len(entries); i++ {
		if !entries[i-1].precedes(entries[i].separator) {
			return false
		}
	}
	return true
}

// entrySize returns the bytes that an entry takes in a node with the given prefix, without the prefix itself.
func entrySize(e *entry, prefix int) int {
	return innerEntryBytes + max(0, len(e.bytes)-prefix-headBytes)
}

// innerSize returns the bytes of a page body that a node of the entries takes.
func innerSize(entries []entry) int {
	prefix := sharedPrefix(entries)
	size := headerBytes + prefix + innerEntryBytes
	for i := 1; i < len(entries); i++ {
		size += entrySize(&entries[i], prefix)
	}
	return size
}

// buildInner makes an inner node of entries, which must fit a page and ascend.
func (a *applier) buildInner(level int, entries []entry) Node {
	size := innerSize(entries)
	if size > BodySize {
		panic("btree: inner node too large")
	}
	image := a.m.alloc(classOf(MuxSize + size))
	encodeInner(add(image, MuxSize), level, entries)
	return viewAt(image, ownsImage)
}

// encodeInner writes the body of an inner node of entries that fit and ascend, without the zeros after it, and
// returns its size.
func encodeInner(dir pointer, level int, entries []entry) (size int) {
	prefix := sharedPrefix(entries)
	size = innerSize(entries)
	count := len(entries)
	store16(dir, levelAt, level)
	store16(dir, countAt, count)
	store16(dir, prefixAt, prefix)
	at := headerBytes + count*innerEntryBytes
	store16(dir, cellBytesAt, size-at)
	if prefix > 0 {
		at += copy(slice(dir, at, prefix), entries[1].bytes)
	}
	slots := headerBytes + count*headBytes
	children := slots + count*innerSlotBytes
	for i := range entries {
		e := &entries[i]
		var rest []byte
		length := 0
		if i > 0 {
			rest = e.bytes[prefix:]
			length = len(rest)
			if e.cut {
				length |= separatorCut
			}
		}
		store32(dir, headerBytes+i*headBytes, headOf(rest))
		store16(dir, slots+i*innerSlotBytes, MuxSize+at)
		store16(dir, slots+i*innerSlotBytes+2, length)
		store64(dir, children+i*childBytes, e.id)
		if len(rest) > headBytes {
			at += copy(slice(dir, at, len(rest)-headBytes), rest[headBytes:])
		}
	}
	return size
}
