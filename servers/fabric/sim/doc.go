// Package sim is a simulated cluster: nodes with clocks and threads, and a fabric between them. Everything happens in
// one goroutine, in virtual time, as a seed decides; the same seed and the same calls give the same run.
//
// A World owns virtual time and is the only scheduler. Everything that happens is an event of the World: a step of a
// thread, a few words of an operation that arrive, a completion, a function given to After. An event is never
// interrupted, so events need no locks.
//
//	w := sim.New(seed, sim.Faults{})
//	a, b := w.NewNode("a"), w.NewNode("b")
//	d := a.Domain()                      // a fabric.Domain of a's present incarnation
//	thread := a.Go("shard", step, queue) // step(now) (worked, next) is called again and again
//	w.Run(10 * time.Second)
//
// Threads. A step function has the form of every protocol part of the servers: it does the work that is due at the
// node's time now, and returns whether it did any. If it worked, it is called again after up to Faults.Pace, and
// occasionally after a pause of up to Faults.Stall. If it did not work, it is called at next (a time in the past
// means spinning, the zero time means never), or earlier, once one of the queues given to Go has a completion or has
// been notified, or Thread.Wake is called. A plain Write of a peer wakes no thread. A step function calls nothing
// that blocks.
//
// Clocks. Node.Now replaces time.Now for the node's programs: it runs up to Faults.Drift fast or slow against
// World.Now, and starts at a different time on each node. Node.Wall is the node's date; it follows Node.Now, and
// differs after JumpWall or Suspend.
//
// What may happen to a node:
//
//	Stop     its threads do nothing until Resume, as after SIGSTOP; time goes on, peers can read and write its
//	         memory, and words of
//	         Writes that it had begun may be held back until Resume.
//	Suspend  Stop, and its monotonic clock stands still too, as that of a suspended machine.
//	Kill its threads end, and so does everything that came from its domain. Peers may continue to read and write
//	         its memory for up
//	         to fabric.Timeout, as with a dead process whose end no peer has noticed. Words of its own Writes may arrive late.
//	Restart  begins a new incarnation after Kill, with new memory; its threads are registered anew.
//
// What may happen between nodes: Cut loses what one node sends to another, in that direction only, until Heal. An
// operation needs both directions; if only the way back is cut, the operation happens, and its initiator sees
// ErrTimeout.
//
// Operations move a few words at a time, in random order, at random times, with steps of all threads in between;
// Faults sets delays and losses. The fabric guarantees what package fabric says, and nothing more.
//
// Blocking calls. Dial, Accept and Queue.Wait run the World until they can return; an event must not call them. The
// simulator of a cluster uses Domain.DialFunc, Listener.Handle and step functions instead.
//
// One goroutine uses a World and everything that belongs to it.
package sim
