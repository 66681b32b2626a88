// Package resp serves the keys of a flashdbm cluster to clients of Redis: it speaks RESP2 and RESP3, and turns
// commands into calls of the client library (package hydra). It keeps no keys of its own, so any node can answer for
// any key.
//
//	s := resp.NewServer(client, resp.Config{Password: "secret"})
//	err := s.Serve(listener) // until Close or Shutdown
//
// # Atomicity
//
// Every command on one key takes effect at one moment, as in Redis. Commands that the shards know (GET, SET, SETNX,
// INCR, DEL) are one request. The other commands read the key with its version, write with compare-and-set, and
// repeat this until no other client has written in between. A command on several keys (MGET, MSET, DEL) is one
// request for each key, and no transaction.
//
// # Pipelines
//
// The commands that have arrived on a connection are served together: commands that do not depend on each other's
// keys become one batch of the client library. Answers are in the order of the commands. A command takes effect after
// all earlier commands of its connection on the same key; commands on different keys that were sent without awaiting
// an answer take effect in any order.
//
// # Limits
//
// A command is parsed in place, in the connection's buffer, which grows only with bytes that have arrived. Config
// bounds the buffer of one connection, the buffers of all connections together, and the number of connections. Until
// it has authenticated, a connection may send ten arguments of 16 KiB. Input that breaks the protocol or a limit is
// answered with an error, and ends that connection only.
//
// Package redcon was not used: it does not bound the size of a command, and has no RESP3.
package resp
