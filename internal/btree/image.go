package btree

// Image returns the page image of which n is the View; nil if n is a version in memory. It lives as long as n may
// be read.
func (n Node) Image() []byte {
	if !n.IsImage() || n.base == nil {
		return nil
	}
	return slice(n.base, 0, PageSize)
}
