package resp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"flashdbm/servers/hydra"
)

func stringCommands() []*command {
	return []*command{
		{name: "get", arity: 2, run: cmdGet, queued: true, summary: "Returns the string value of a key.", flags: "readonly fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "set", arity: -3, run: cmdSet, queued: true, summary: "Sets the string value of a key.", flags: "write denyoom", first: 1, last: 1, step: 1, group: "string"},
		{name: "setnx", arity: 3, run: cmdSetNX, queued: true, summary: "Sets the value of a key if it is absent.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "setex", arity: 4, run: cmdSetEX, queued: true, summary: "Sets a key and its time to live in seconds.", flags: "write denyoom", first: 1, last: 1, step: 1, group: "string"},
		{name: "psetex", arity: 4, run: cmdPSetEX, queued: true, summary: "Sets a key and its time to live in milliseconds.", flags: "write denyoom", first: 1, last: 1, step: 1, group: "string"},
		{name: "getset", arity: 3, run: cmdGetSet, summary: "Sets a key and returns its previous value.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "getdel", arity: 2, run: cmdGetDel, summary: "Returns the value of a key and removes it.", flags: "write fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "strlen", arity: 2, run: cmdStrlen, queued: true, summary: "Returns the length of a value.", flags: "readonly fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "append", arity: 3, run: cmdAppend, summary: "Appends to the value of a key.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "mget", arity: -2, run: cmdMGet, summary: "Returns the values of keys; each key is read for itself.", flags: "readonly fast", first: 1, last: -1, step: 1, group: "string"},
		{name: "mset", arity: -3, run: cmdMSet, summary: "Sets keys; each key is set for itself.", flags: "write denyoom", first: 1, last: -1, step: 2, group: "string"},
		{name: "incr", arity: 2, run: cmdIncr, queued: true, summary: "Adds one to a number.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "decr", arity: 2, run: cmdDecr, queued: true, summary: "Subtracts one from a number.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "incrby", arity: 3, run: cmdIncrBy, queued: true, summary: "Adds to a number.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
		{name: "decrby", arity: 3, run: cmdDecrBy, queued: true, summary: "Subtracts from a number.", flags: "write denyoom fast", first: 1, last: 1, step: 1, group: "string"},
	}
}

func cmdGet(c *conn, args [][]byte) {
	c.queue(hydra.Request{Kind: hydra.Get, Key: args[1]}, answerValue)
}

func cmdStrlen(c *conn, args [][]byte) {
	c.queue(hydra.Request{Kind: hydra.Get, Key: args[1]}, answerLength)
}

func cmdSetNX(c *conn, args [][]byte) {
	c.queue(hydra.Request{Kind: hydra.Insert, Key: args[1], Value: args[2]}, answerOneOrZero)
}

func cmdSetEX(c *conn, args [][]byte)  { setWithin(c, "setex", args, time.Second) }
func cmdPSetEX(c *conn, args [][]byte) { setWithin(c, "psetex", args, time.Millisecond) }

func setWithin(c *conn, name string, args [][]byte, unit time.Duration) {
	e, text := expiryOf(name, args[2], unit, true)
	if text != "" {
		c.fail(text)
		return
	}
	c.queue(hydra.Request{Kind: hydra.Put, Key: args[1], Value: args[3], Expiry: e}, answerOK)
}

// expiryOf parses a time to live, or a date if relative is false.
func expiryOf(name string, arg []byte, unit time.Duration, relative bool) (e hydra.Expiry, wrong string) {
	n, ok := parseInt(arg)
	if !ok {
		return e, errNotInteger
	}
	ms, ok := milliseconds(n, unit, relative)
	if !ok || n <= 0 {
		return e, fmt.Sprintf("ERR invalid expire time in '%s' command", name)
	}
	return hydra.At(time.UnixMilli(ms)), ""
}

// milliseconds returns a date in milliseconds since 1970: n units from now, or n units from 1970 if relative is
// false.
func milliseconds(n int64, unit time.Duration, relative bool) (ms int64, ok bool) {
	each := unit.Milliseconds()
	if n > math.MaxInt64/each || n < math.MinInt64/each {
		return 0, false
	}
	ms = n * each
	if relative {
		now := time.Now().UnixMilli()
		if ms > math.MaxInt64-now {
			return 0, false
		}
		ms += now
	}
	return ms, true
}

// setOptions are the options after key and value in SET.
type setOptions struct {
	nx, xx, get, keep bool
	expiry            hydra.Expiry
}

// parseSet parses the options. As in Redis, an option may come twice, and the last one counts; what is wrong with a
// time is looked at behind the names of all options.
func parseSet(args [][]byte) (o setOptions, wrong string) {
	var when, value []byte // the option that says when the key expires
	for i := 3; i < len(args); i++ {
		switch a := args[i]; {
		case is(a, "NX") && !o.xx:
			o.nx = true
		case is(a, "XX") && !o.nx:
			o.xx = true
		case is(a, "GET"):
			o.get = true
		case is(a, "KEEPTTL") && when == nil:
			o.keep = true
		case setUnit(a) != 0 && !o.keep && i+1 < len(args) && (when == nil || bytes.EqualFold(when, a)):
			i++
			when, value = a, args[i]
		default:
			return o, errSyntax
		}
	}
	if o.keep {
		o.expiry = hydra.Keep()
	}
	if when != nil {
		o.expiry, wrong = expiryOf("set", value, setUnit(when), len(when) == len("EX"))
	}
	return o, wrong
}

// setUnit returns the unit of an option of SET that says when the key expires: EX and PX count from now, EXAT and PXAT
// from 1970. For other options it returns 0.
func setUnit(option []byte) time.Duration {
	switch {
	case is(option, "EX"), is(option, "EXAT"):
		return time.Second
	case is(option, "PX"), is(option, "PXAT"):
		return time.Millisecond
	}
	return 0
}

func cmdSet(c *conn, args [][]byte) {
	r := hydra.Request{Kind: hydra.Put, Key: args[1], Value: args[2]}
	if len(args) == 3 {
		c.queue(r, answerOK)
		return
	}
	o, wrong := parseSet(args)
	r.Expiry = o.expiry
	switch {
	case wrong != "":
		c.fail(wrong)
	case o.get:
		c.runBatch()
		c.setGet(args[1], args[2], o)
	case o.nx:
		r.Kind = hydra.Insert
		c.queue(r, answerOKOrNull)
	case o.xx:
		r.Kind = hydra.Update
		c.queue(r, answerOKOrNull)
	default:
		c.queue(r, answerOK)
	}
}

// setGet sets a key if the condition holds, and answers with the old value in any case.
func (c *conn) setGet(key, value []byte, o setOptions) {
	old, found, err := c.update(key, func(_ *hydra.Item, found bool) change {
		if (found && o.nx) || (!found && o.xx) {
			return change{}
		}
		return change{do: changeSet, value: value, expiry: o.expiry}
	})
	c.answerOld(old, found, err)
}

func (c *conn) answerOld(old hydra.Item, found bool, err error) {
	switch {
	case err != nil:
		c.storeError(err)
	case !found:
		c.out.null()
	default:
		c.out.bulk(old.Value)
	}
}

func cmdGetSet(c *conn, args [][]byte) { c.setGet(args[1], args[2], setOptions{}) }

func cmdGetDel(c *conn, args [][]byte) {
	old, found, err := c.update(args[1], func(*hydra.Item, bool) change { return change{do: changeRemove} })
	c.answerOld(old, found, err)
}

func cmdAppend(c *conn, args [][]byte) {
	var value []byte
	_, _, err := c.update(args[1], func(i *hydra.Item, found bool) change {
		value = append(append(value[:0], i.Value...), args[2]...)
		return change{do: changeSet, value: value, expiry: hydra.Keep()}
	})
	if err != nil {
		c.storeError(err)
		return
	}
	c.out.integer(int64(len(value)))
}

// A change is what an update does to a key.
type change struct {
	do     changeKind
	value  []byte
	expiry hydra.Expiry
}

type changeKind uint8

const (
	changeNothing changeKind = iota
	changeSet
	changeRemove // removes the item that is there, if any
)

// update reads a key and changes it as decide says, in one step: if another client has written in between, update
// begins again. Whenever that happens, some client has made progress. It returns the item that the key had
// before.
func (c *conn) update(key []byte, decide func(i *hydra.Item, found bool) change) (old hydra.Item, found bool, err error) {
	ctx := c.s.ctx
	for {
		old, err = c.s.store.GetItem(ctx, key)
		found = err == nil
		if err != nil && !errors.Is(err, hydra.ErrNotFound) {
			return old, false, err
		}
		if !found {
			old = hydra.Item{}
		}
		ch := decide(&old, found)
		switch {
		case ch.do == changeSet:
			_, err = c.s.store.CompareAndSet(ctx, key, old.Version, ch.value, ch.expiry)
		case ch.do == changeRemove && found:
			err = c.s.store.CompareAndDelete(ctx, key, old.Version)
		default:
			err = nil
		}
		if !errors.Is(err, hydra.ErrVersion) {
			return old, found, err
		}
	}
}

func cmdIncr(c *conn, args [][]byte) { c.add(args[1], 1) }
func cmdDecr(c *conn, args [][]byte) { c.add(args[1], -1) }

func cmdIncrBy(c *conn, args [][]byte) {
	n, ok := parseInt(args[2])
	if !ok {
		c.fail(errNotInteger)
		return
	}
	c.add(args[1], n)
}

func cmdDecrBy(c *conn, args [][]byte) {
	n, ok := parseInt(args[2])
	switch {
	case !ok:
		c.fail(errNotInteger)
	case n == math.MinInt64:
		c.fail("ERR decrement would overflow")
	default:
		c.add(args[1], -n)
	}
}

func (c *conn) add(key []byte, n int64) {
	c.queue(hydra.Request{Kind: hydra.Add, Key: key, N: n}, answerSum)
}

func cmdMGet(c *conn, args [][]byte) {
	if t := c.s.o.Transactions; t != nil {
		begun := false
		err := t.GetAll(c.s.ctx, args[1:], func(value []byte) {
			if !begun {
				begun = true
				c.out.array(len(args) - 1)
			}
			if value == nil {
				c.out.null()
			} else {
				c.out.bulk(value)
			}
			c.out.bounded()
		})
		if err != nil {
			c.storeError(err)
		}
		return
	}
	c.out.array(len(args) - 1)
	c.each(len(args)-1, func(i int, r *hydra.Request) {
		r.Kind, r.Key = hydra.Get, args[i+1]
	}, func(r *hydra.Request) {
		c.answer(r, answerValue)
		c.out.bounded()
	})
}

func cmdMSet(c *conn, args [][]byte) {
	if len(args)%2 == 0 {
		c.fail("ERR wrong number of arguments for 'mset' command")
		return
	}
	if t := c.s.o.Transactions; t != nil {
		if err := t.SetAll(c.s.ctx, args[1:]); err != nil {
			c.storeError(err)
		} else {
			c.out.simple("OK")
		}
		return
	}
	var failed error
	c.each(len(args)/2, func(i int, r *hydra.Request) {
		r.Kind, r.Key, r.Value = hydra.Put, args[2*i+1], args[2*i+2]
	}, func(r *hydra.Request) {
		if failed == nil {
			failed = r.Err
		}
	})
	if failed != nil {
		c.storeError(failed)
		return
	}
	c.out.simple("OK")
}
