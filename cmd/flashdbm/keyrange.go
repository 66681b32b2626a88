package main

import (
	"bytes"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// keyRange holds the flags that select keys.
type keyRange struct {
	from, to, prefix string
}

func (k *keyRange) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&k.from, "from", "", "begin at this `KEY`")
	flags.StringVar(&k.to, "to", "", "end before this `KEY`")
	flags.StringVar(&k.prefix, "prefix", "", "only keys that begin with `KEY`")
}

// bounds is the range of keys [from, to); nil is an open end.
type bounds struct {
	from, to []byte
}

// bounds intersects --from and --to with --prefix.
func (k *keyRange) bounds(cmd *cobra.Command, n *notation) (b bounds, err error) {
	if cmd.Flags().Changed("from") {
		if b.from, err = n.parse("key of --from", k.from); err != nil {
			return b, err
		}
	}
	if cmd.Flags().Changed("to") {
		if b.to, err = n.parse("key of --to", k.to); err != nil {
			return b, err
		}
	}
	prefix, err := n.parse("key of --prefix", k.prefix)
	if err != nil {
		return b, err
	}
	return b.within(prefix), nil
}

// within returns the part of b whose keys begin with prefix.
func (b bounds) within(prefix []byte) bounds {
	if len(prefix) > 0 && bytes.Compare(prefix, b.from) > 0 {
		b.from = prefix
	}
	if end := prefixEnd(prefix); end != nil && (b.to == nil || bytes.Compare(end, b.to) < 0) {
		b.to = end
	}
	return b
}

// prefixEnd returns the least key above all keys that begin with prefix, nil if there is none.
func prefixEnd(prefix []byte) []byte {
	kept := bytes.TrimRight(prefix, "\xff")
	if len(kept) == 0 {
		return nil
	}
	end := bytes.Clone(kept)
	end[len(end)-1]++
	return end
}

// first moves c to the first record within b, or to the last one if reverse.
func (b bounds) first(c *dbm.Cursor, reverse bool) bool {
	switch {
	case !reverse:
		return c.Seek(b.from) && b.holds(c.Key())
	case b.to == nil:
		return c.Last() && b.holds(c.Key())
	}
	c.Seek(b.to)
	return c.Prev() && b.holds(c.Key())
}

// next moves c to the next record within b, in the given direction.
func (b bounds) next(c *dbm.Cursor, reverse bool) bool {
	if reverse {
		return c.Prev() && b.holds(c.Key())
	}
	return c.Next() && b.holds(c.Key())
}

func (b bounds) holds(key []byte) bool {
	return bytes.Compare(key, b.from) >= 0 && (b.to == nil || bytes.Compare(key, b.to) < 0)
}
