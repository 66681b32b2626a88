package resp

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"flashdbm/servers/hydra"
)

func keyCommands() []*command {
	key := func(name string, arity int, run func(*conn, [][]byte), flags, summary string) *command {
		return &command{name: name, arity: arity, run: run, flags: flags, summary: summary, first: 1, last: 1, step: 1, group: "generic"}
	}
	list := []*command{
		key("del", -2, cmdDel, "write", "Removes keys."),
		key("unlink", -2, cmdDel, "write fast", "Removes keys; the same as DEL."),
		key("exists", -2, cmdExists, "readonly fast", "Counts which of the keys exist."),
		key("expire", -3, expireCommand("expire", time.Second, true), "write fast", "Sets the time to live of a key in seconds."),
		key("pexpire", -3, expireCommand("pexpire", time.Millisecond, true), "write fast", "Sets the time to live of a key in milliseconds."),
		key("expireat", -3, expireCommand("expireat", time.Second, false), "write fast", "Sets when a key expires, in seconds since 1970."),
		key("pexpireat", -3, expireCommand("pexpireat", time.Millisecond, false), "write fast", "Sets when a key expires, in milliseconds since 1970."),
		key("ttl", 2, func(c *conn, args [][]byte) { c.timeToLive(args[1], time.Second) }, "readonly fast", "Returns the time to live of a key in seconds."),
		key("pttl", 2, func(c *conn, args [][]byte) { c.timeToLive(args[1], time.Millisecond) }, "readonly fast", "Returns the time to live of a key in milliseconds."),
		key("persist", 2, cmdPersist, "write fast", "Removes the expiry of a key."),
		key("type", 2, cmdType, "readonly fast", "Returns the type of a value, which is string."),
		{name: "scan", arity: -2, run: cmdScan, flags: "readonly", summary: "Walks all keys.", group: "generic"},
		{name: "dbsize", arity: 1, run: cmdDBSize, flags: "readonly", summary: "Counts all keys, which walks them.", group: "server"},
		{name: "flushdb", arity: -1, run: cmdFlush, flags: "write", summary: "Removes all keys, one after the other.", group: "server"},
		{name: "flushall", arity: -1, run: cmdFlush, flags: "write", summary: "Removes all keys, one after the other.", group: "server"},
	}
	for _, x := range list[:3] {
		x.last = -1
	}
	return list
}

func cmdDel(c *conn, args [][]byte)    { c.count(hydra.Delete, args[1:]) }
func cmdExists(c *conn, args [][]byte) { c.count(hydra.Get, args[1:]) }

// count answers with the number of keys that were found.
func (c *conn) count(k hydra.Kind, keys [][]byte) {
	n := int64(0)
	var failed error
	c.each(len(keys), func(i int, r *hydra.Request) { r.Kind, r.Key = k, keys[i] }, func(r *hydra.Request) {
		switch {
		case r.Err == nil:
			n++
		case !errors.Is(r.Err, hydra.ErrNotFound) && failed == nil:
			failed = r.Err
		}
	})
	if failed != nil {
		c.storeError(failed)
		return
	}
	c.out.integer(n)
}

// expireConditions are the options of EXPIRE.
type expireConditions struct{ nx, xx, gt, lt bool }

func parseExpire(args [][]byte) (o expireConditions, wrong string) {
	for _, a := range args {
		switch {
		case is(a, "NX"):
			o.nx = true
		case is(a, "XX"):
			o.xx = true
		case is(a, "GT"):
			o.gt = true
		case is(a, "LT"):
			o.lt = true
		default:
			return o, fmt.Sprintf("ERR Unsupported option %.128s", a)
		}
	}
	switch {
	case o.nx && (o.xx || o.gt || o.lt):
		return o, "ERR NX and XX, GT or LT options at the same time are not compatible"
	case o.gt && o.lt:
		return o, "ERR GT and LT options at the same time are not compatible"
	}
	return o, ""
}

// allow reports whether the options allow to replace the old expiry by that date. A key that never expires counts as
// later than all dates.
func (o expireConditions) allow(old time.Time, ms int64) bool {
	before := int64(math.MaxInt64)
	if !old.IsZero() {
		before = old.UnixMilli()
	}
	return !(o.nx && !old.IsZero() || o.xx && old.IsZero() || o.gt && ms <= before || o.lt && ms >= before)
}

func expireCommand(name string, unit time.Duration, relative bool) func(*conn, [][]byte) {
	return func(c *conn, args [][]byte) {
		o, wrong := parseExpire(args[3:])
		if wrong != "" {
			c.fail(wrong)
			return
		}
		n, ok := parseInt(args[2])
		if !ok {
			c.fail(errNotInteger)
			return
		}
		ms, ok := milliseconds(n, unit, relative)
		if !ok {
			c.fail(fmt.Sprintf("ERR invalid expire time in '%s' command", name))
			return
		}
		done := false
		_, _, err := c.update(args[1], func(i *hydra.Item, found bool) change {
			done = found && o.allow(i.Expiry, ms)
			switch {
			case !done:
				return change{}
			case ms <= time.Now().UnixMilli():
				return change{do: changeRemove}
			}
			return change{do: changeSet, value: i.Value, expiry: hydra.At(time.UnixMilli(ms))}
		})
		c.answerDone(done, err)
	}
}

func (c *conn) answerDone(done bool, err error) {
	switch {
	case err != nil:
		c.storeError(err)
	case done:
		c.out.integer(1)
	default:
		c.out.integer(0)
	}
}

func cmdPersist(c *conn, args [][]byte) {
	done := false
	_, _, err := c.update(args[1], func(i *hydra.Item, found bool) change {
		if done = found && !i.Expiry.IsZero(); !done {
			return change{}
		}
		return change{do: changeSet, value: i.Value}
	})
	c.answerDone(done, err)
}

// timeToLive answers with the time that is left, rounded; -1 if the key never expires, -2 if it is absent.
func (c *conn) timeToLive(key []byte, unit time.Duration) {
	i, err := c.s.store.GetItem(c.s.ctx, key)
	switch {
	case errors.Is(err, hydra.ErrNotFound):
		c.out.integer(-2)
	case err != nil:
		c.storeError(err)
	case i.Expiry.IsZero():
		c.out.integer(-1)
	default:
		ms := max(i.Expiry.UnixMilli()-time.Now().UnixMilli(), 0)
		each := unit.Milliseconds()
		n := ms / each
		if ms%each >= (each+1)/2 && each > 1 {
			n++
		}
		c.out.integer(n)
	}
}

func cmdType(c *conn, args [][]byte) {
	_, err := c.s.store.GetItem(c.s.ctx, args[1])
	switch {
	case errors.Is(err, hydra.ErrNotFound):
		c.out.simple("none")
	case err != nil:
		c.storeError(err)
	default:
		c.out.simple("string")
	}
}

const (
	scanCount    = 10     // keys of a page, approximately, if the client does not say
	maxScanCount = 10_000 // at most: the answer is in memory as a whole
)

// cmdScan returns a page of keys. The cursor is a position among the hashes, so it stays valid across restarts.
func cmdScan(c *conn, args [][]byte) {
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		c.fail("ERR invalid cursor")
		return
	}
	o := hydra.ScanOptions{KeysOnly: true, Limit: scanCount}
	var pattern []byte
	none := false
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			c.fail(errSyntax)
			return
		}
		switch value := args[i+1]; {
		case is(args[i], "MATCH"):
			pattern = value
		case is(args[i], "COUNT"):
			n, ok := parseInt(value)
			if !ok {
				c.fail(errNotInteger)
				return
			}
			if n < 1 {
				c.fail(errSyntax)
				return
			}
			o.Limit = int(min(n, maxScanCount))
		case is(args[i], "TYPE"):
			none = !is(value, "STRING")
		default:
			c.fail(errSyntax)
			return
		}
	}
	page, next, more, err := c.s.store.ScanPage(c.s.ctx, cursor, &o)
	if err != nil {
		c.storeError(err)
		return
	}
	kept, now := page[:0], time.Now()
	for _, e := range page {
		expired := !e.Expiry.IsZero() && !e.Expiry.After(now)
		if !none && !expired && (pattern == nil || matches(pattern, e.Key)) {
			kept = append(kept, e)
		}
	}
	if !more {
		next = 0
	}
	c.out.array(2)
	c.out.text(strconv.FormatUint(next, 10))
	c.out.array(len(kept))
	for _, e := range kept {
		c.out.bulk(e.Key)
	}
}

// pages calls f with all keys, one page at a time.
func (c *conn) pages(f func(page []hydra.Entry) error) error {
	for cursor, more := uint64(0), true; more; {
		page, next, goesOn, err := c.s.store.ScanPage(c.s.ctx, cursor, &hydra.ScanOptions{KeysOnly: true})
		if err == nil {
			err = f(page)
		}
		if err != nil {
			return err
		}
		cursor, more = next, goesOn
	}
	return nil
}

func cmdDBSize(c *conn, _ [][]byte) {
	n, now := int64(0), time.Now()
	err := c.pages(func(page []hydra.Entry) error {
		for _, e := range page {
			if e.Expiry.IsZero() || e.Expiry.After(now) {
				n++
			}
		}
		return nil
	})
	if err != nil {
		c.storeError(err)
		return
	}
	c.out.integer(n)
}

func cmdFlush(c *conn, args [][]byte) {
	if len(args) > 2 || (len(args) == 2 && !is(args[1], "SYNC") && !is(args[1], "ASYNC")) {
		c.fail(errSyntax)
		return
	}
	err := c.pages(func(page []hydra.Entry) error {
		var failed error
		c.each(len(page), func(i int, r *hydra.Request) {
			r.Kind, r.Key = hydra.Delete, page[i].Key
		}, func(r *hydra.Request) {
			if r.Err != nil && !errors.Is(r.Err, hydra.ErrNotFound) && failed == nil {
				failed = r.Err
			}
		})
		return failed
	})
	if err != nil {
		c.storeError(err)
		return
	}
	c.out.simple("OK")
}
