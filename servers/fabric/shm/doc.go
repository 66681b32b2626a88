// Package shm is a fabric between the processes of one Linux machine. Its Reads and Writes are truly one-sided: the initiator maps the
// owner's memory and copies, and the owner's process makes no call and takes no processor time for it.
//
// A connection is a socket of type SOCK_SEQPACKET at a path of the file system. Over it go the descriptors of memory, messages, and the news
// of a process's death: the kernel closes what a dead process had open.
//
//   - A region that peers may reach is a memfd, sealed against changes of its size, so that a mapping of it never faults. A peer that
//     names its key gets a descriptor, read-only if it has no right to write, and maps it; it keeps the mapping for the connection.
//   - A domain has a table of fence words, which peers map read-only. A region has one of them. The word is the region's ID while the region
//     can be reached, and something else afterwards: IDs are never used again, words are. An operation looks at it before it copies and,
//     behind a barrier, again afterwards. Fence changes the word, and its caller looks at the memory behind another barrier: so either
//     the operation sees the change and fails, or the caller sees all that the operation has written.
//   - Close punches the memory out of the memfd, so those who still have it mapped read zeros and hold none of it.
//   - A queue has a bell, a page that peers map: the place of a futex, and whether somebody sleeps there. Notify makes a system call only
//     if somebody does.
//   - Sends, which take a Recv of the peer, go through the socket, one at a time.
//
// Who may connect may read what it has a key for, and write where the owner lets it; it may also disturb the bells of its endpoints'
// queues, so Queue.Wait sleeps no longer than 100 ms at a time. The socket can be opened by the owner's user only.
package shm
