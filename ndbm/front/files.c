/*
 * See files.h. The engine has descriptions of its own of the .pag file, so that its locks are not shared with a forked child, which has
 * the program's descriptors too. The child opens others in its turn, by /proc/self/fd or by name. Where it cannot (a file that this user may
 * not open any more, no /proc) it uses the inherited description, with locks of the older kind, which belong to a process.
 */
#define _GNU_SOURCE
#include "files.h"
#include "engine.h"
#include "still.h"
#include "turn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One way of using a file in the engine: to read and write, or to read only. */
struct use {
	int fd;     /* the engine's descriptor, -1 if there is none yet */
	int posix;  /* it shares its description with the program's descriptor */
	int handle; /* in the running engine, 0 if it has not been opened there */
};

struct shared {
	dev_t device;
	ino_t inode;
	char *pag_name; /* as it was opened */
	int handles, writers;
	struct use writing, reading;
	struct still still; /* of reading */
	struct pair *open, *parked;
	struct shared *next;
};

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all; /* guarded by table, and all that hangs on it but fields written once */

/* ---- fork ---- */

/*
 * A page that the kernel empties in a child: *same_process is 1 in the process that has set it. So each call notices a fork by one read
 * of memory, also one that no handler was called for.
 */
static volatile int *same_process;
static int fallback_pid; /* where the kernel cannot do that */

static void child_of_fork(void);

static void before_fork(void)
{
	if (__atomic_load_n(&all, __ATOMIC_RELAXED) != NULL)
		engine_prepare_spare();
	pthread_mutex_lock(&table);
}

static void parent_of_fork(void)
{
	pthread_mutex_unlock(&table);
}

static void watch_for_fork(void)
{
	static volatile int plain = 1;
	void *page;

	page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page != MAP_FAILED && madvise(page, 1, MADV_WIPEONFORK) == 0) {
		same_process = page;
		*same_process = 1;
	} else {
		fallback_pid = getpid();
		same_process = &plain;
	}
	pthread_atfork(before_fork, parent_of_fork, child_of_fork);
}

/* A description of our own of the file behind fd. */
static int reopen(int fd, int access, const struct shared *s)
{
	char link[64];
	struct stat st;
	int own;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	own = open(link, access | O_CLOEXEC);
	if (own < 0)
		own = open(s->pag_name, access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (own < 0)
		return -1;
	if (fstat(own, &st) != 0 || st.st_dev != s->device || st.st_ino != s->inode) {
		close(own);
		return -1;
	}
	return own;
}

/* Moves a descriptor away from the numbers of the standard streams. */
static int above_streams(int fd, int flags)
{
	int moved;

	if (fd < 0 || fd > 2)
		return fd;
	moved = fcntl(fd, flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 3);
	close(fd);
	return moved;
}

/* Gives a use a descriptor by way of one of the program's with the same access. */
static int equip(struct use *u, const struct shared *s, int fd, int access)
{
	if (u->fd >= 0)
		return 0;
	u->posix = 0;
	u->fd = above_streams(reopen(fd, access, s), O_CLOEXEC);
	if (u->fd < 0) {
		u->posix = 1;
		u->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	}
	return u->fd < 0 ? -1 : 0;
}

/* A descriptor of the program's with the given access. */
static int descriptor(const struct shared *s, int access)
{
	const struct pair *p;

	for (p = s->open; p != NULL; p = p->next)
		if (p->access == access)
			return p->pag;
	for (p = s->parked; p != NULL; p = p->next)
		if (p->access == access)
			return p->pag;
	return -1;
}

static void renew(struct use *u, const struct shared *s, int access)
{
	int fd = descriptor(s, access);

	u->handle = 0;
	if (u->fd < 0)
		return;
	close(u->fd); /* the parent's; as long as it is open here, a lock on it outlives the parent */
	u->fd = -1;
	if (fd >= 0)
		equip(u, s, fd, access);
}

/* Makes do with what is allowed in the child of a process with threads: system calls. */
static void child_of_fork(void)
{
	static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
	struct shared *s;

	table = unlocked;
	engine_forget();
	turn_forget();
	for (s = all; s != NULL; s = s->next) {
		renew(&s->writing, s, O_RDWR);
		renew(&s->reading, s, O_RDONLY);
		still_forget(&s->still);
	}
	fallback_pid = fallback_pid == 0 ? 0 : getpid();
	*same_process = 1;
}

void files_notice_fork(void)
{
	if (__builtin_expect(*same_process == 0 || (fallback_pid != 0 && fallback_pid != getpid()), 0))
		child_of_fork(); /* a child that no handler was called in */
}

/* ---- the table ---- */

static struct shared *find(const struct stat *st)
{
	struct shared *s;

	for (s = all; s != NULL; s = s->next)
		if (s->device == st->st_dev && s->inode == st->st_ino)
			return s;
	return NULL;
}

static struct shared *add(const struct stat *st, const char *pag_name)
{
	struct shared *s = calloc(1, sizeof *s);

	if (s == NULL || (s->pag_name = strdup(pag_name)) == NULL) {
		free(s);
		return NULL;
	}
	s->device = st->st_dev;
	s->inode = st->st_ino;
	s->writing.fd = s->reading.fd = -1;
	still_forget(&s->still);
	s->next = all;
	__atomic_store_n(&all, s, __ATOMIC_RELAXED);
	return s;
}

static void take_out(struct shared *s)
{
	struct shared **at = &all;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
}

static void close_pair(struct pair *p)
{
	if (p->dir >= 0)
		close(p->dir);
	if (p->pag >= 0)
		close(p->pag);
	free(p);
}

/* Closes what the last handle leaves. */
static void dispose(struct shared *s)
{
	struct pair *p;

	while ((p = s->parked) != NULL) {
		s->parked = p->next;
		close_pair(p);
	}
	free(s->pag_name);
	free(s);
}

/* A parked pair with this access, for the file that the name means now. */
static struct pair *unpark(const char *pag_name, int access, struct shared **shared)
{
	struct pair **at, *p;
	struct stat st;
	struct shared *s;

	if (all == NULL || stat(pag_name, &st) != 0 || (s = find(&st)) == NULL)
		return NULL;
	for (at = &s->parked; (p = *at) != NULL; at = &p->next) {
		if (p->access != access)
			continue;
		*at = p->next;
		*shared = s;
		return p;
	}
	return NULL;
}

/* Lets go of the locks that closing the descriptors would have dropped with them. */
static void park(struct shared *s, struct pair *p)
{
	struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	int flags;

	fcntl(p->dir, F_OFD_SETLK, &whole);
	if ((flags = fcntl(p->dir, F_GETFD)) >= 0)
		fcntl(p->dir, F_SETFD, flags | FD_CLOEXEC);
	if ((flags = fcntl(p->pag, F_GETFD)) >= 0)
		fcntl(p->pag, F_SETFD, flags | FD_CLOEXEC);
	p->next = s->parked;
	s->parked = p;
}

/* A new file's name is made durable, as far as its directory can be read. */
static void sync_directory(const char *name)
{
	char *copy = strdup(name), *slash;
	int dir;

	if (copy == NULL)
		return;
	slash = strrchr(copy, '/');
	if (slash != NULL)
		slash[1] = '\0';
	dir = open(slash == NULL ? "." : copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0) {
		fsync(dir);
		close(dir);
	}
	free(copy);
}

/* Opens one file. *created: this call has made it. A failure leaves errno. */
static int open_file(const char *name, int flags, mode_t mode, int *created)
{
	int fd;

	*created = 0;
	do {
		if (flags & O_CREAT) {
			fd = open(name, flags | O_EXCL, mode);
			if (fd >= 0)
				*created = 1;
			else if (errno == EEXIST && !(flags & O_EXCL))
				fd = open(name, flags & ~O_CREAT, mode);
		} else {
			fd = open(name, flags, mode);
		}
	} while (fd < 0 && errno == EINTR);
	return above_streams(fd, flags);
}

/* Opens both files. On failure nothing is left of what this call has made. */
static struct pair *open_pair(const char *dir, const char *pag, int flags, mode_t mode)
{
	struct pair *p = calloc(1, sizeof *p);
	int made_dir = 0, made_pag = 0, failure;
	struct stat st;

	if (p == NULL)
		return NULL;
	p->access = flags & O_ACCMODE;
	p->dir = -1;
	p->pag = open_file(pag, flags, mode, &made_pag);
	if (p->pag >= 0)
		p->dir = open_file(dir, flags, mode, &made_dir);
	if (p->dir >= 0 && fstat(p->pag, &st) == 0) {
		if (S_ISREG(st.st_mode)) {
			if (made_pag || made_dir)
				sync_directory(pag);
			return p;
		}
		errno = EINVAL;
	}
	failure = errno;
	if (made_pag)
		unlink(pag);
	if (made_dir)
		unlink(dir);
	close_pair(p); /* of another handle's file only if NAME.pag is open and NAME.dir is not to be had */
	errno = failure;
	return NULL;
}

static int files_open_locked(const char *dir, const char *pag, int flags, mode_t mode, struct shared **shared, struct pair **pair)
{
	struct shared *s = NULL;
	struct pair *p = NULL;
	struct stat st;
	int access = flags & O_ACCMODE;

	if (!((flags & O_CREAT) && (flags & O_EXCL)))
		p = unpark(pag, access, &s);
	if (p == NULL) {
		p = open_pair(dir, pag, flags, mode);
		if (p == NULL || fstat(p->pag, &st) != 0)
			return -1;
		s = find(&st);
		if (s == NULL)
			s = add(&st, pag);
		if (s == NULL) {
			close_pair(p);
			return -1;
		}
	}
	p->next = s->open;
	s->open = p;
	s->handles++;
	s->writers += access == O_RDWR;
	*shared = s;
	*pair = p;
	return equip(access == O_RDWR ? &s->writing : &s->reading, s, p->pag, access);
}

int files_open(const char *name, int flags, mode_t mode, struct shared **shared, struct pair **pair)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	size_t n = strlen(name);
	char *dir = malloc(n + sizeof ".dir"), *pag = malloc(n + sizeof ".pag");
	int ret = -1, failure;

	*shared = NULL;
	*pair = NULL;
	pthread_once(&once, watch_for_fork);
	files_notice_fork();
	if (dir != NULL && pag != NULL && turn_begin() == 0) {
		memcpy(dir, name, n);
		memcpy(dir + n, ".dir", sizeof ".dir");
		memcpy(pag, name, n);
		memcpy(pag + n, ".pag", sizeof ".pag");
		pthread_mutex_lock(&table);
		ret = files_open_locked(dir, pag, flags, mode, shared, pair);
		pthread_mutex_unlock(&table);
		turn_end();
	}
	failure = errno;
	free(dir);
	free(pag);
	if (ret != 0 && *shared != NULL)
		files_close(*shared, *pair);
	errno = failure;
	return ret;
}

struct still *files_still(struct shared *s) { return &s->still; }

int files_engine_handle(struct shared *s)
{
	struct use *u = __atomic_load_n(&s->writers, __ATOMIC_RELAXED) > 0 ? &s->writing : &s->reading;
	const struct engine *e;
	int handle = __atomic_load_n(&u->handle, __ATOMIC_ACQUIRE);

	if (__builtin_expect(handle > 0, 1))
		return handle;
	e = engine_get();
	if (e == NULL || turn_begin() != 0)
		return 0;
	pthread_mutex_lock(&table);
	u = s->writers > 0 ? &s->writing : &s->reading;
	if (u->handle == 0) {
		if (u->fd < 0) {
			int access = u == &s->writing ? O_RDWR : O_RDONLY;
			int fd = descriptor(s, access);

			if (fd < 0 || equip(u, s, fd, access) != 0) {
				pthread_mutex_unlock(&table);
				turn_end();
				errno = EBADF;
				return 0;
			}
		}
		handle = e->open(u->fd, u == &s->reading, u->posix, turn_durable(), u == &s->reading ? &s->still : NULL);
		if (handle > 0)
			__atomic_store_n(&u->handle, handle, __ATOMIC_RELEASE);
		else
			u->fd = -1;
	}
	handle = u->handle;
	pthread_mutex_unlock(&table);
	turn_end();
	if (handle == 0)
		errno = EIO;
	return handle;
}

/*
 * Ends one use of the file. The engine has the descriptor if it has a handle. -1 if it keeps it for ever, and knows what s has: another thread
 * has left a call by longjmp.
 */
static int end_use(struct use *u)
{
	const struct engine *e = u->handle > 0 ? engine_get() : NULL;

	if (e != NULL)
		return e->close(u->handle) == -EDEADLK ? -1 : 0;
	if (u->fd >= 0)
		close(u->fd);
	return 0;
}

void files_close(struct shared *s, struct pair *p)
{
	struct pair **at = &s->open;
	const struct engine *e;
	int last, handle = 0, shut = 0, pag = p->access == O_RDWR ? p->pag : -1;
	int usable = turn_begin() == 0, left = !usable; /* left: by a jump, this thread or another one, a call of the engine */

	pthread_mutex_lock(&table);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	park(s, p);
	s->handles--;
	if (p->access == O_RDWR) {
		handle = s->writing.handle;
		shut = --s->writers == 0;
	}
	last = s->handles == 0 && usable;
	if (last)
		take_out(s);
	pthread_mutex_unlock(&table);

	if (last)
		left = end_use(&s->writing) | end_use(&s->reading);
	else if (usable && handle > 0 && (e = engine_get()) != NULL)
		left = (shut ? e->shut(handle) : e->sync(handle)) == -EDEADLK;
	if (left && pag >= 0) /* the engine keeps the database open. What was stored is in the file */
		fdatasync(pag);
	if (last && !left && !still_busy(&s->still))
		dispose(s);
	if (usable)
		turn_end();
}
