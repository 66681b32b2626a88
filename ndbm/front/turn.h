/*
 * A call's turn in the engine: signals, and waiting for other processes.
 *
 * A handler that the program has installed without SA_ONSTACK runs on the stack of whatever its thread is doing, and within the engine that
 * is a small one of Go's; and if it leaves by longjmp, the call never ends. So calls that write or wait block signals, but those of
 * faults: handlers run when they are over. Calls that only read do not, since that would double what they cost: their stacks are large enough
 * for a handler, and a handler that leaves by longjmp leaves the engine unusable: later calls of its thread fail with EDEADLK, and dbm_close
 * does what it can without the engine.
 */
#ifndef FLASHDBM_TURN_H
#define FLASHDBM_TURN_H

/* Begins and ends a call that blocks signals. It fails, with EDEADLK, if this thread is in a call already, or has left one by a jump. */
int turn_begin(void);
void turn_end(void);

/*
 * Begins and ends one that does not, but for a thread's first: the runtime then prepares itself for the thread, and would leave its own
 * mask behind. It fails as turn_begin does.
 */
int turn_enter(void);
void turn_leave(void);

/*
 * After a call of the engine for handle has returned ret: whether to try again, because another process has held the database and there
 * is time left; then it has waited. started is 0 before the first wait.
 */
int turn_again(int ret, int handle, double *started);

/* What FLASHDBM_DURABILITY asks for. */
int turn_durable(void);

/* In a child after fork. */
void turn_forget(void);

#endif
