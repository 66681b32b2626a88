/*
 * The files of this process's databases: which are open, by inode; their descriptors; and what becomes of them in a forked child.
 */
#ifndef FLASHDBM_FILES_H
#define FLASHDBM_FILES_H

#include <sys/types.h>

/* The two descriptors that a program gets with a handle. */
struct pair {
	int dir, pag;
	int access; /* O_RDONLY or O_RDWR */
	struct pair *next;
};

/*
 * One .pag file that this process has open, in any number of handles. They share one engine: the writable one while a handle that
 * can write is open, or else the one that only reads.
 *
 * No descriptor of the two files is closed before the last handle is: closing any would drop the locks that the program has on the file
 * through another. Those of closed handles are parked, and used again.
 */
struct shared;

/*
 * Opens NAME.dir and NAME.pag for one more handle, with open(2)'s flags and mode but O_TRUNC. 0, or -1 and errno.
 */
int files_open(const char *name, int flags, mode_t mode, struct shared **shared, struct pair **pair);

/* Ends a handle's use. The engine closes the file with the last one, else it syncs it. */
void files_close(struct shared *s, struct pair *p);

/* The engine's handle for a call, opened if need be: in this process's engine. 0 and errno if it cannot be. Writable if it is ever so. */
int files_engine_handle(struct shared *s);

/* What the engine shows of the file while nobody writes it. */
struct still *files_still(struct shared *s);

/* Whether this process is the forked child of the one that called last; then what was the parent's has been put right. */
void files_notice_fork(void);

#endif
