package mvcc

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"flashdbm/logstore"
)

// memoryFault is what the runtime panics with if a mapped page cannot be read, in a goroutine with
// debug.SetPanicOnFault: the file was truncated by somebody, or the device failed.
type memoryFault interface {
	runtime.Error
	Addr() uintptr
}

// AsFault converts a recovered panic to an error if it is a fault on a mapping of the file. Without an engine (nil),
// as beside a writer, nothing is mapped.
func (e *Engine) AsFault(r any) (error, bool) {
	if e == nil {
		return nil, false
	}
	return e.asFault(r)
}

// asFault is Engine.AsFault.
func (f *file) asFault(r any) (error, bool) {
	fault, ok := r.(memoryFault)
	if !ok {
		return nil, false
	}
	return f.store.Faulted(fault.Addr())
}

// guard is deferred. It turns a fault on a mapping into an error; other panics go on.
func (f *file) guard(err *error) {
	if r := recover(); r != nil {
		fault, ok := f.asFault(r)
		if !ok {
			panic(r)
		}
		*err = fault
	}
}

// errUnreadable says that an argument is in memory that cannot be read.
var errUnreadable = errors.New("flashdbm: the value lies in memory that cannot be read")

// writeValue writes the caller's value. A fault in the caller's memory is an error of this call, without other
// effects. A fault on a mapping of the file, which the value may be a slice of, remains a panic.
func (f *file) writeValue(p *logstore.Private, value []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(memoryFault)
		if _, ours := f.asFault(r); !ok || ours {
			p.Discard()
			panic(r)
		}
		err = fmt.Errorf("%w: %w", errUnreadable, fault)
	}()
	_, err = p.Write(value)
	return err
}

var errBroken = errors.New("flashdbm: a panic while the tree was being changed")

// protect is deferred by functions that change the tree or the log. It turns a fault on a mapping into an error;
// other panics go on. In both cases it poisons the store, because the change is left half done.
func (f *file) protect(err *error) {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := f.asFault(r)
	if !ok {
		f.store.Fail(errBroken)
		panic(r)
	}
	*err = f.store.Fail(fault)
}

// withMerged calls fn with the token, and with a tree that lacks nothing. It always passes the token on.
func (t *tree) withMerged(fn func() error) error {
	t.awaitMerge()
	return t.log.withLog(func() error {
		if t.Failed() == nil {
			t.mergeInStints()
			if err := t.merge(); err != nil {
				return err
			}
		}
		t.finishMerge()
		return fn()
	})
}

// withExact calls fn with the token, and with an exact tree: it may lack commits, but no more than lag bytes of redo.
// See tree.exact.
func (t *tree) withExact(lag int64, fn func() error) error {
	if lag == 0 {
		return t.withMerged(fn)
	}
	t.awaitMerge()
	return t.log.withLog(func() error {
		t.finishMerge()
		if err := t.catchUp(lag); err != nil {
			return err
		}
		return fn()
	})
}

// catchUp makes the tree exact if it is not, or if it lacks more than lag bytes of redo. No merge is under way before
// and after. Token held; catchUp passes it on meanwhile.
func (t *tree) catchUp(lag int64) error {
	near := func() bool {
		return t.tables.lacksNothing() || t.exact() && t.log.bytes.Total()+t.log.waiting()-t.upto.bytes <= lag
	}
	if near() || t.Failed() != nil {
		return t.Failed()
	}
	if t.manyWait() && t.seal() {
		t.tables.noBackground++
		t.token.pass(true)
		t.awaitMerge()
		t.token.take()
		t.tables.noBackground--
		t.finishMerge()
		if t.exact() || t.Failed() != nil {
			return t.Failed()
		}
	}
	t.mergeInStints()
	return t.merge()
}

// withTree calls fn with the token while no merge is under way. The tree may lack commits.
func (t *tree) withTree(fn func() error) error {
	t.awaitMerge()
	return t.log.withLog(func() error {
		t.finishMerge()
		return fn()
	})
}

// withLog calls fn, which does not look at the tree, with the token.
func (l *redoLog) withLog(fn func() error) (err error) {
	l.token.take()
	defer l.token.pass(true)
	defer l.protect(&err) // before the token is passed on
	return fn()
}
