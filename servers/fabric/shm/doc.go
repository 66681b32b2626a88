// Package shm is a fabric between processes of one Linux machine. Its Reads and Writes are truly one-sided: the
// initiator maps the owner's memory and copies, and the owner's process makes no call and spends no processor time.
//
// A connection is a socket of type SOCK_SEQPACKET at a path of the file system. It carries descriptors of memory
// and messages, and its end shows the death of a process, because the kernel closes the sockets of a dead
// process.
//
//   - A region that peers may reach is a memfd, sealed against changes of its size, so that an access to a mapping
//     never faults. A peer that names the region's key receives a descriptor, read-only if the peer has no right to
//     write, and maps it; the peer keeps the mapping as long as the connection.
//   - A domain has a table of fence words, which peers map read-only. Each region has one of the words: it equals the
//     region's ID while the region can be reached, and differs afterwards. A word is used again by later regions, an
//     ID never. An operation reads the word before it copies and, after a barrier, once more. Fence changes the word,
//     and its caller reads the memory after another barrier. So either the operation sees the change and fails, or
//     the caller sees everything that the operation has written.
//   - Close punches the memory out of the memfd, so peers that still map it read zeros and keep no memory allocated.
//   - A queue has a bell, a page that peers map. It holds a futex, and a word that says whether a goroutine sleeps on
//     it. Notify makes a system call only if one does.
//   - Sends, which consume a Recv of the peer, go through the socket, one at a time.
//
// A process that may connect may read the regions whose keys it has, and write where the owner permits. It can also
// disturb the bells of its endpoints' queues, so Queue.Wait sleeps at most 100 ms at a time. Only the owner's user
// can open the socket.
package shm
