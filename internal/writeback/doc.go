// Package writeback tests the states in which a power cut would leave the device, given the writes of the
// kernel itself while a process uses a database. The other crash tests use a model of the kernel.
//
// A FUSE file system keeps its files in a vfs.Mem, which sees every write, sync, allocation and truncation of the
// kernel, and can make any legal image of what is durable. The database is a file on it, or a file in an ext4 or
// XFS on a loop device whose file is on it. In the latter case images are of a disk, as the file system and its
// journal wrote it. Package streams runs in a separate process, not in the one that serves the files, because a
// page fault on a mapping would block the runtime that has to answer it.
//
// The database of each image is opened, compared with what the process had recorded outside of it when the image
// was taken, and checked.
//
// The tests need Linux, root, /dev/fuse and loop devices. A test that lacks one of these says so and counts as
// not run. make fuse runs them.
package writeback
