package logstore

// maxWindowPages bounds what a scan keeps in memory, whatever the segment size: 1 MiB.
const maxWindowPages = 256

// A window reads the file in aligned stretches of pages, each within one segment. It never uses the mapping, so
// a file that was cut short ends the log instead of causing a fault.
type window struct {
	s     *disk
	end   uint64 // pages of the file
	pages uint64 // pages per stretch, a power of two
	first Addr   // first page of the stretch in buf
	buf   []byte // the present stretch, as far as the file has it; empty before the first read
}

func (s *disk) newWindow() window {
	pages := min(uint64(s.segmentPages), maxWindowPages)
	return window{s: s, end: s.space.End(), pages: pages}
}

// from returns the bytes from page a to the end of its stretch, none if a is beyond the end of the file. The
// slice is valid until the next call.
func (w *window) from(a Addr) ([]byte, error) {
	if a >= w.end {
		return nil, nil
	}
	if first := a &^ (w.pages - 1); first != w.first || len(w.buf) == 0 {
		n := min(w.pages, w.end-first) * PageSize
		if w.buf == nil {
			w.buf = make([]byte, 0, min(w.pages, w.end)*PageSize)
		}
		w.first, w.buf = first, w.buf[:n]
		if _, err := w.s.read(w.buf, first); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[(a-w.first)*PageSize:], nil
}

// page returns page a, nil if a is beyond the end of the file.
func (w *window) page(a Addr) ([]byte, error) {
	b, err := w.from(a)
	if len(b) == 0 {
		return nil, err
	}
	return b[:PageSize:PageSize], nil
}
