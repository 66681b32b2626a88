// Package tcp is a fabric over TCP, for every system and between machines. It emulates one-sided operations: a Read
// or Write is a frame to an agent, two goroutines of the owner's process, which carries it out. So each operation
// costs the owner's process processor time, and a stopped process answers nothing; but the owner's other threads are
// not involved.
//
// A connection is one TCP connection, with TLS 1.3 if Options say so. Both ends first send a greeting: "flashdbm",
// version 1, rejected 1, incarnation 8, depth 4, length 2, hello. Then each end sends frames. Their first byte is the
// kind; the figures are bytes, and numbers are little-endian.
//
//	'r'  region 8, rkey 8, nonce 8, offset 8, bytes 4               a Read
//	'w'  flags 1 (1: notify), the same, data                        a Write
//	's'  bytes 4, data                                              a Send; no operation follows before the answer
//	'd'  bytes 4, data, status 1                                    the answer to a Read; data is valid if status is 0
//	'k'  status 1                                                   the answer to a Write or Send: 0, 1: ErrAccess
//
// Answers come in the order of the operations. An end that breaks these rules is disconnected. An end that has
// operations under way and makes no progress for fabric.Timeout ends with ErrTimeout, because the peer's kernel may
// acknowledge data that its process never reads.
package tcp
