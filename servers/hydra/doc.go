// Package hydra is the client of a flashdbm cluster that is served by HydraDB: a key-value store whose values are Read one-sidedly where
// the fabric can do that.
//
//	c, err := hydra.Dial(ctx, []string{"shm:/run/flashdbm/n1.sock"}, nil)
//	version, err := c.Put(ctx, key, value)
//	value, err := c.Get(ctx, key)
//
// A Client dials all shards and keeps the connections. It is for all goroutines of the process: they share its connections, and its cache
// of pointers. Keys and values that are passed in are not kept after the call; what is returned is the caller's.
//
// # What is certain
//
// A call returns nil after its effect is as durable as the cluster's mode says. Writes are applied at most once however often they are
// sent: each carries the client's number, and a shard answers a number again instead of applying it again. When a shard lost what it
// knew of the numbers (it was restarted while the write was under way), or when the context ends first, the error is ErrUnknownOutcome:
// the write may have been applied, or not. All other errors mean that it was not.
//
// # How it works
//
// A GET whose pointer counts is made by its caller itself where the fabric lets any goroutine Read (shm): see sight.go. All other calls go by the engine.
//
// The engine is single-threaded: it starts calls, and its Step moves messages and completions. There is no goroutine for it. A caller
// that finds it free drives it until its own call is done, which takes no handoff; callers that find it busy leave their calls to the
// driver, whose next Flush sends them with one doorbell. A driver that is done wakes one of those that wait to go on.
//
// A program that has the node in its own process uses Local instead of Dial: its calls are function calls, see line.go and package machine.
//
// A GET that brought a pointer is repeated one-sidedly, by a Read of the item at the shard. The rules under which the copy counts:
//
//  1. The reign that gave the pointer has tenure before the Read is posted: it surely still owns the key.
//  2. The pointer's lease lasts at the Read's completion: the place has not been used again.
//  3. The guardian is the hash of the copy, and its key the one that was asked for (package guard).
//  4. Tenure and lease count from before the request was sent that brought them, by this process's clock, less 1/64 for clocks
//     that run at different rates.
//  5. When the wall clock and the monotonic clock part by more than 100 ms between two looks, the machine was suspended:
//     all tenures and leases are over.
//
// Otherwise the GET goes by message.
package hydra
