/*
 * The engine as the front library sees it: the functions that ../exports.go exports. Each returns 0 or 1, or an errno made negative;
 * -EBUSY means that another process holds the database and was asked for it: call again in a millisecond, or call cancel.
 *
 * A handle is a positive number and means one .pag file. Keys and values may be NULL if their size is 0. A reply is written as far as
 * there is room; *size is the length it has. The engine keeps no pointer that it was given.
 */
#ifndef FLASHDBM_ENGINE_H
#define FLASHDBM_ENGINE_H

#include <stddef.h>

struct still;

struct engine {
	/*
	 * Takes over a descriptor, also if it fails. posix: the description is shared with other processes. In still, if it is not NULL, the
	 * engine shows the tree when it can, until it is closed. Returns a handle.
	 */
	int (*open)(int fd, int read_only, int posix, int durable, struct still *still);
	int (*bind)(void);           /* prepares the calling thread, and its stack for signal handlers */
	int (*start)(int handle);    /* waits for nothing: -EBUSY */
	int (*truncate)(int handle); /* removes all */
	int (*sync)(int handle);
	int (*shut)(int handle);     /* syncs, and lets the lock go until the next call */
	int (*cancel)(int handle);   /* does not want the lock any more */
	int (*close)(int handle);    /* syncs, and closes the descriptor */
	int (*fetch)(int handle, const void *key, size_t key_size, void *reply, size_t room, size_t *size);
	int (*after)(int handle, const void *key, size_t key_size, int first, void *reply, size_t room, size_t *size);
	int (*store)(int handle, const void *key, size_t key_size, const void *value, size_t value_size, int insert);
	int (*remove)(int handle, const void *key, size_t key_size);
};

/*
 * The running engine of this process; it is loaded and started if there is none. NULL, and errno, if it cannot be: ELIBACC, ENOMEM.
 */
const struct engine *engine_get(void);

/* Loads the copy that a child of this process will run, if there is none yet. */
void engine_prepare_spare(void);

/* In a child after fork: the engine is the parent's, and dead here. Calls nothing that is not allowed after fork. */
void engine_forget(void);

#endif
