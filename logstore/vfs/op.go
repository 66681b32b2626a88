package vfs

import (
	"errors"
	"fmt"
)

// Kind says which method an [Op] calls.
type Kind uint8

// The operations that a hook sees: every call that changes a file, a name or what is durable, and Map. A hook
// does not see reads.
const (
	OpCreate   Kind = iota + 1 // Open that makes a new file
	OpRemove                   // FS.Remove
	OpSyncDir                  // FS.SyncDir
	OpWrite                    // File.WriteAt
	OpWriteVec                 // File.WriteVec
	OpDatasync                 // File.Datasync
	OpWriteOut                 // File.WriteOut
	OpAllocate                 // File.Allocate
	OpPunch                    // File.Punch
	OpTruncate                 // File.Truncate
	OpMap                      // File.Map
	OpWindow                   // Windowed.Window
	OpStore                    // Window.Store: once for the copied bytes and once for the word
)

var kindNames = [...]string{
	OpCreate: "create", OpRemove: "remove", OpSyncDir: "syncdir", OpWrite: "write", OpWriteVec: "writevec",
	OpDatasync: "datasync", OpWriteOut: "writeout", OpAllocate: "allocate", OpPunch: "punch",
	OpTruncate: "truncate", OpMap: "map", OpWindow: "window", OpStore: "store",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Op is one call, shown to a hook before it is carried out. If the hook returns an error, the call is not
// carried out and returns that error with the operation and the path. Two errors have a meaning of their own:
// see [ShortWrite] for writes, and [Mem] for a failed Datasync.
type Op struct {
	Kind  Kind
	Name  string // of the file, as given to Open
	Off   int64  // bytes; the new size for OpTruncate
	Len   int64  // bytes; 0 if the operation has no length
	Index int    // number of calls that the hooked FS saw before this one
}

func (o Op) String() string {
	return fmt.Sprintf("#%d %v %s [%d,+%d)", o.Index, o.Kind, o.Name, o.Off, o.Len)
}

// ShortWrite is an error that a hook returns from a write: the first N bytes are written, then the write fails
// with Err. With a Mem.Clone taken afterwards it also models a process killed in the middle of a write.
type ShortWrite struct {
	N   int64
	Err error
}

func (e *ShortWrite) Error() string {
	return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Err)
}

func (e *ShortWrite) Unwrap() error { return e.Err }

// shortened returns the part of a write that a fault lets through: nothing, unless the fault is a *ShortWrite.
func shortened(fault error, p []byte) []byte {
	var short *ShortWrite
	if !errors.As(fault, &short) {
		return nil
	}
	return p[:min(max(short.N, 0), int64(len(p)))]
}
