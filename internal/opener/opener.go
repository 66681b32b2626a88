// Package opener lets tests of the modules below flashdbm open a database on a file system of their own, such as
// vfs.Mem. Package dbm itself opens only files of the operating system.
package opener

import "flashdbm/logstore/vfs"

// On is dbm.Open on another file system. Package dbm sets it once, when it is initialised. opts is a *dbm.Options,
// and db a *dbm.DB; the types are not named because this package is below dbm.
var On func(fs vfs.FS, path string, opts any) (db any, err error)
