package dbm

import "flashdbm/logstore"

// These changes for hostile files concern logged values: the places in leaves, the count in a mux area, and the
// masks in the space map.

// Offsets and sizes of a place and of a space map entry with masks, see docs/format.md.
const (
	placeSize, placeLength               = 10, 8
	mapMasks, maskBytes, mapMean, mapRaw = mapLive + 8, 2, 2, 8
	placeAt                              = 0x3FFFF // offset and ordinal
)

// places returns where a leaf has the places of logged values.
func (h *hostile) places(a int) (at []int) {
	h.cells(a, func(value, kind int) {
		if kind == 3 && value+placeSize <= logstore.PageSize {
			at = append(at, value)
		}
	})
	return at
}

// logged changes what leads to logged values. It also changes dead leaves, most of whose values are dead, too.
func (h *hostile) logged() {
	var with [][2]int
	for _, a := range h.inner[0] {
		for _, at := range h.places(a) {
			with = append(with, [2]int{a, at})
		}
	}
	records := h.kinds[logstore.KindRecord]
	if len(with) == 0 || len(records) == 0 {
		return
	}
	x, y := one(h.rng, with), one(h.rng, with)
	r, s := h.page(x[0])[x[1]:x[1]+placeSize], h.page(y[0])[y[1]:y[1]+placeSize]
	move := func(a int) { le.PutUint64(r, le.Uint64(r)&placeAt|uint64(a)<<18) }
	switch h.rng.IntN(13) {
	case 0: // the value of another key
		copy(r, s)
	case 1: // a wrong length
		copy(r[:placeLength], s[:placeLength])
	case 2: // a wrong ordinal, perhaps beyond those of the page
		r[0] = r[0]&0xF0 | byte(h.rng.IntN(16))
	case 3: // a wrong offset
		le.PutUint64(r, le.Uint64(r)&^(placeAt&^15)|uint64(h.rng.IntN(1<<14))<<4)
	case 4: // a page of any kind, perhaps a dead one
		move(one(h.rng, h.pages))
	case 5: // a page of records
		move(one(h.rng, records))
	case 6:
		le.PutUint16(r[placeLength:], oddNumber[uint16](h.rng, h.sealer))
	case 7:
		le.PutUint64(r, oddNumber[uint64](h.rng, h.sealer))
	case 8: // the number of values in a page
		p := h.page(one(h.rng, records))
		le.PutUint64(p[muxName:], le.Uint64(p[muxName:])&^0xFF|one(h.rng, []uint64{0, 1, 2, 15, 16, 17, 1 << 16, 1<<64 - 1}))
	case 12: // the number of raw pages after it
		h.page(one(h.rng, records))[recordRaw] = byte(h.rng.IntN(5))
	case 9: // all records of a leaf with the same value, as far as it has places
		for _, at := range h.places(x[0]) {
			copy(h.page(x[0])[at:at+placeSize], r)
		}
	case 10: // the same offset and ordinal in every page
		for _, w := range with {
			p := h.page(w[0])[w[1]:]
			le.PutUint64(p, le.Uint64(p)&^placeAt|le.Uint64(r)&placeAt)
		}
	case 11:
		h.masks()
		return
	}
	h.note("place at %d of page %d", x[1], x[0])
}

// masks changes which logged values are live according to the space map.
func (h *hostile) masks() {
	var with [][]byte
	for _, a := range h.kinds[logstore.KindCheckpoint] {
		for _, e := range h.spaceMap(a) {
			if len(e) > mapMasks {
				with = append(with, e)
			}
		}
	}
	if len(with) == 0 {
		return
	}
	e := one(h.rng, with)
	masks := e[mapMasks : len(e)-mapMean-mapRaw]
	at := maskBytes * h.rng.IntN(len(masks)/maskBytes)
	switch h.rng.IntN(11) {
	case 0: // none is live
		clear(masks)
	case 1: // one more or less
		masks[at+h.rng.IntN(2)] ^= 1 << h.rng.IntN(8)
	case 2: // all possible ones
		le.PutUint16(masks[at:], 0xFFFF)
	case 3: // in another page, which may belong to the tree
		to := maskBytes * h.rng.IntN(len(masks)/maskBytes)
		copy(masks[to:to+maskBytes], masks[at:])
		if h.rng.IntN(2) == 0 {
			e[mapLive] |= 1 << (to / maskBytes)
		}
	case 4: // in all live pages
		for i := range len(masks) / maskBytes {
			if e[mapLive]>>i&1 != 0 {
				le.PutUint16(masks[i*maskBytes:], 1<<h.rng.IntN(17)-1)
			}
		}
	case 5: // those of another segment
		copy(masks, one(h.rng, with)[mapMasks:])
		if h.rng.IntN(2) == 0 {
			copy(e[mapMasks:], one(h.rng, with)[mapMasks:])
		}
	case 6: // the page is live without values
		clear(masks[at : at+maskBytes])
	case 7:
		le.PutUint16(e[len(e)-mapMean-mapRaw:], oddNumber[uint16](h.rng, h.sealer))
	case 8: // no page is raw
		clear(e[len(e)-mapRaw:])
	case 9: // one more or less
		e[len(e)-mapRaw] ^= 1 << h.rng.IntN(8)
	case 10: // all possible ones
		for i := 1; i < len(masks)/maskBytes; i++ {
			if e[mapLive]>>i&1 != 0 && le.Uint16(masks[i*maskBytes:]) == 0 && e[mapLive]>>(i-1)&1 != 0 {
				e[len(e)-mapRaw] |= 1 << i
			}
		}
	}
	h.note("masks of page %d of a segment", at/maskBytes)
}
