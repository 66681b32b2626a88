package mvcc

import (
	"fmt"
	"runtime"

	"flashdbm/logstore"
)

// memoryFault is what the runtime panics with when a mapped page cannot be read, on a goroutine with debug.SetPanicOnFault: the file
// was cut short under us, or the device failed.
type memoryFault interface {
	runtime.Error
	Addr() uintptr
}

// AsFault converts a recovered panic to an error if it is a fault on a mapping.
func AsFault(r any) (error, bool) {
	f, ok := r.(memoryFault)
	if !ok {
		return nil, false
	}
	return fmt.Errorf("%w: a mapped page cannot be read (fault at %#x): was the file cut short?", logstore.ErrCorrupt, f.Addr()), true
}

// guard is deferred: it turns a fault on a mapping into an error.
func guard(err *error) {
	if r := recover(); r != nil {
		fault, ok := AsFault(r)
		if !ok {
			panic(r)
		}
		*err = fault
	}
}
