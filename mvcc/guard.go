package mvcc

import (
	"errors"
	"math"
	"runtime"
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

// withBaton calls fn with the baton, which is passed on whatever happens, and with nothing pending.
func (e *Engine) withBaton(fn func() error) (err error) {
	e.awaitAside()
	e.takeBaton()
	defer e.putBaton(true)
	defer e.protect(&err) // before the baton is passed on
	e.thinAside(math.MaxUint64)
	if e.Failed() == nil {
		if err := e.merge(e.applied.Load()); err != nil {
			return err
		}
	}
	e.settleAside()
	return fn()
}

// withLog calls fn, which does not look at the tree, with the baton: what is pending stays so.
func (e *Engine) withLog(fn func() error) (err error) {
	e.takeBaton()
	defer e.putBaton(true)
	defer e.protect(&err) // before the baton is passed on
	return fn()
}
