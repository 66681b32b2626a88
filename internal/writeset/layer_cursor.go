package writeset

// layerCursor is a Cursor over one layer. It also stops at deletes.
type layerCursor struct {
	l      *Layer
	page   int // -1: before the start; l.pages: past the end
	index  int // index of the record in the page
	data   []byte
	count  int
	loaded int // 1 + the page of data and count; 0: none
	rec    layerRecord
	key    []byte
	err    error
}

func newLayerCursor(l *Layer) *layerCursor { return &layerCursor{l: l, page: -1} }

// turn loads data and count of the current page.
func (c *layerCursor) turn() bool {
	if c.loaded != c.page+1 {
		c.data = c.l.page(c.page)
		if c.count, c.err = layerCount(c.data); c.err != nil {
			return false
		}
		c.loaded = c.page + 1
	}
	return true
}

// load decodes the current record.
func (c *layerCursor) load() bool {
	if c.err != nil || !c.turn() {
		return false
	}
	if c.rec, c.err = getLayerRecord(c.data, c.index); c.err == nil {
		c.key, c.err = c.l.keyOf(&c.rec)
	}
	return c.err == nil
}

func (c *layerCursor) First() bool {
	c.page, c.index = 0, 0
	return c.load()
}

func (c *layerCursor) Last() bool {
	c.page = c.l.pages - 1
	if c.err != nil || !c.turn() {
		return false
	}
	c.index = c.count - 1
	return c.load()
}

func (c *layerCursor) Seek(key []byte) bool {
	if c.err != nil {
		return false
	}
	if c.page, c.index, c.err = c.l.find(key); c.err != nil || c.page == c.l.pages {
		return false
	}
	return c.load()
}

func (c *layerCursor) Next() bool {
	switch {
	case c.page == c.l.pages || c.err != nil:
		return false
	case c.page < 0:
		return c.First()
	case !c.turn():
		return false
	}
	if c.index++; c.index == c.count {
		c.page, c.index = c.page+1, 0
		if c.page == c.l.pages {
			return false
		}
	}
	return c.load()
}

func (c *layerCursor) Prev() bool {
	switch {
	case c.page < 0 || c.err != nil:
		return false
	case c.page == c.l.pages:
		return c.Last()
	}
	if c.index--; c.index < 0 {
		if c.page--; c.page < 0 || !c.turn() {
			return false
		}
		c.index = c.count - 1
	}
	return c.load()
}

func (c *layerCursor) Key() []byte { return c.key }
func (c *layerCursor) Err() error  { return c.err }
