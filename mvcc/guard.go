package mvcc

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"flashdbm/logstore"
)

// memoryFault is what the runtime panics with when a mapped page cannot be read, on a goroutine with debug.SetPanicOnFault: the file
// was cut short under us, or the device failed.
type memoryFault interface {
	runtime.Error
	Addr() uintptr
}

// AsFault converts a recovered panic to an error if it is a fault on a mapping of the file.
func (e *Engine) AsFault(r any) (error, bool) {
	f, ok := r.(memoryFault)
	if !ok || e == nil { // beside a writer nothing is mapped
		return nil, false
	}
	return e.store.Faulted(f.Addr())
}

// guard is deferred: it turns a fault on a mapping into an error.
func (e *Engine) guard(err *error) {
	if r := recover(); r != nil {
		fault, ok := e.AsFault(r)
		if !ok {
			panic(r)
		}
		*err = fault
	}
}

// errUnreadable is of an argument that lies in memory that cannot be read.
var errUnreadable = errors.New("flashdbm: the value lies in memory that cannot be read")

// writeValue writes the caller's value. A fault there is an error of that call, and nothing else has come of it; a fault on a mapping of
// the file, of which the value may be a slice, is the panic that it always is.
func (e *Engine) writeValue(p *logstore.Private, value []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		f, ok := r.(memoryFault)
		if _, ours := e.AsFault(r); !ok || ours {
			p.Discard()
			panic(r)
		}
		err = fmt.Errorf("%w: %w", errUnreadable, f)
	}()
	_, err = p.Write(value)
	return err
}

var errBroken = errors.New("flashdbm: a panic while the tree was being changed")

// protect is deferred by what changes the tree or the log. It turns a fault on a mapping into an error; any other panic goes on. Either
// way the store is poisoned, as work was left half done.
func (e *Engine) protect(err *error) {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := e.AsFault(r)
	if !ok {
		e.store.Fail(errBroken)
		panic(r)
	}
	*err = e.store.Fail(fault)
}

// withBaton calls fn with the baton, which is passed on whatever happens, and with a tree that lacks nothing.
func (e *Engine) withBaton(fn func() error) (err error) {
	e.awaitMerge()
	e.takeBaton()
	defer e.putBaton(true)
	defer e.protect(&err) // before the baton is passed on
	e.thinBackground()
	if e.Failed() == nil {
		e.mergeInStints()
		if err := e.merge(); err != nil {
			return err
		}
	}
	e.settleMerge()
	return fn()
}

// withTree calls fn with the baton, and with the tree its own: there is no merge under way. The tree may lack commits.
func (e *Engine) withTree(fn func() error) (err error) {
	e.awaitMerge()
	e.takeBaton()
	defer e.putBaton(true)
	defer e.protect(&err) // before the baton is passed on
	e.settleMerge()
	return fn()
}

// withLog calls fn, which does not look at the tree, with the baton.
func (e *Engine) withLog(fn func() error) (err error) {
	e.takeBaton()
	defer e.putBaton(true)
	defer e.protect(&err) // before the baton is passed on
	return fn()
}
