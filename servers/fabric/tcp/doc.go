// Package tcp is a fabric over TCP, for every system and between machines. It is an emulation: a Read or Write is a frame to an agent, two
// goroutines of the owner's process, which carry it out. So the owner's process works for each of them, and one that is stopped answers
// nothing; only the owner's other threads have nothing to do with it.
//
// A connection is one TCP connection, with TLS 1.3 if Options say so. Both ends first send a greeting: "flashdbm", version 1, incarnation 8,
// depth 4, length 2, hello. Then each sends frames, whose first byte says what they are. Numbers are little endian.
//
//	'r'  region 8, rkey 8, nonce 8, offset 8, bytes 4               a Read
//	'w'  flags 1 (1: notify), the same, data                        a Write
//	's'  bytes 4, data                                              a Send; nothing follows before it is answered
//	'd'  bytes 4, data, status 1                                    the answer to a Read; the data means nothing unless the status is 0
//	'k'  status 1                                                   the answer to a Write or Send: 0, or 1 for ErrAccess
//
// Answers come in the order of what they answer. An end that breaks these rules is cut off. One that has operations under way and hears
// nothing for fabric.Timeout ends with ErrTimeout, as the peer's kernel may acknowledge what its process never reads.
package tcp
