// Package opener lets tests of the modules below flashdbm open a database on a file system of their own, such as vfs.Mem. Package dbm opens
// files of the operating system only.
package opener

import "flashdbm/logstore/vfs"

// On is dbm.Open on another file system. Package dbm sets it when it is initialised, and nobody sets it again. opts is a *dbm.Options; what
// is returned is a *dbm.DB. The types are not named, as this package is below dbm.
var On func(fs vfs.FS, path string, opts any) (db any, err error)
