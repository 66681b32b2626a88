// Package writeback looks at what the kernel itself writes, and when, while a process uses a database: at the images that a power cut
// would leave of that, where the other crash tests have those of a model.
//
// A FUSE file system keeps its files in a vfs.Mem, which sees every write, sync, allocation and truncation that the kernel sends and can
// make any legal image of what is durable. The database lies on it as a file, or in an ext4 or XFS on a loop device whose file lies
// there: then the images are of a disk, written by the file system and its journal. A process of its own runs package streams; it is not
// the one that serves the files, since a page fault on a mapping would hold up the very runtime that has to answer it.
//
// Of each image the database is opened, compared with what the process had recorded outside of it when the image was taken, and checked.
//
// It needs Linux, root, /dev/fuse and loop devices; what is missing is said, and counts as not run. make fuse.
package writeback
