/* The functions of ndbm.h. */
#define _GNU_SOURCE
#include "front.h"

#include "engine.h"
#include "files.h"
#include "still.h"
#include "turn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Memory that a handle returns. */
struct buffer {
	char *data;
	size_t room;
};

#define SMALLEST_BUFFER 256

struct state {
	struct shared *shared;
	struct pair *pair;
	int failed; /* dbm_error */
	int read_only;

	struct buffer value, key;

	/* Where the iteration is: the last key that it returned, apart from key, which the program may overwrite. */
	enum { NOT_BEGUN, ON_KEY, AT_END } place;
	struct buffer last;
	size_t last_size;
};

static struct state *state_of(DBM *db)
{
	if (db == NULL || db->state == NULL) {
		errno = EINVAL;
		return NULL;
	}
	files_notice_fork();
	return db->state;
}

static int valid(datum d)
{
	if (SIZE_OF(d) <= LARGEST && (d.dptr != NULL || SIZE_OF(d) == 0))
		return 1;
	errno = EINVAL;
	return 0;
}

/* Takes note of what a call of the engine returned: -1 and errno if it is an error. */
static int settle(struct state *s, int ret)
{
	if (ret >= 0)
		return ret;
	errno = ret == -EBUSY ? EAGAIN : -ret;
	switch (errno) {
	case EAGAIN: /* another process has the database */
	case EPERM:
	case EDEADLK: /* an earlier call of the thread was left by longjmp */
	case EINVAL:
	case EOVERFLOW:
	case ENOMEM:
		break;
	default:
		s->failed = 1;
	}
	return -1;
}

static int make_room(struct buffer *b, size_t size, struct buffer *old)
{
	size_t room = b->room < SMALLEST_BUFFER ? SMALLEST_BUFFER : b->room;

	while (room <= size) /* and one for a zero behind it */
		room = room > SIZE_MAX / 2 ? SIZE_MAX : room * 2;
	*old = *b;
	b->data = malloc(room);
	if (b->data == NULL) {
		*b = *old;
		old->data = NULL;
		return -1;
	}
	b->room = room;
	return 0;
}

static datum none(void)
{
	datum d = {NULL, 0};

	return d;
}

static datum found(struct buffer *b, size_t size)
{
	datum d;

	b->data[size] = '\0';
	d.dptr = b->data;
	d.dsize = size;
	return d;
}

/* A call that replies into a buffer. */
enum question { FETCH, AFTER, FIRST };

static int ask_once(enum question q, int handle, const char *key, size_t key_size, struct buffer *b, size_t *size)
{
	const struct engine *e = engine_get();
	size_t room = b->room - 1;
	int ret;

	if (e == NULL)
		return -errno;
	if (turn_enter() != 0)
		return -errno;
	if (q == FETCH)
		ret = e->fetch(handle, key, key_size, b->data, room, size);
	else
		ret = e->after(handle, key, key_size, q == FIRST, b->data, room, size);
	turn_leave();
	return ret;
}

/* Looks where the engine need not be asked. */
static int fetch_still(struct state *s, const char *key, size_t key_size, struct buffer *b, size_t *size)
{
	return still_fetch(files_still(s->shared), key, key_size, b->data, b->room - 1, size);
}

/*
 * 1 with the reply in b, 0 if there is none, -1 and errno. The key may lie in b: what b was before is freed when the call is over.
 */
static int ask(struct state *s, enum question q, const char *key, size_t key_size, struct buffer *b, size_t *size)
{
	struct buffer old, outgrown = {NULL, 0};
	double started = 0;
	int handle, ret;

	if (b->data == NULL && make_room(b, 0, &old) != 0)
		return -1;
	for (;;) {
		ret = q == FETCH ? fetch_still(s, key, key_size, b, size) : STILL_ASK;
		handle = 0;
		if (ret == STILL_ASK) {
			handle = files_engine_handle(s->shared);
			if (handle <= 0)
				return settle(s, -errno);
			ret = ask_once(q, handle, key, key_size, b, size);
		}
		if (ret == 1 && *size >= b->room) {
			if (make_room(b, *size, &old) != 0) {
				ret = -ENOMEM;
				break;
			}
			if (outgrown.data == NULL) /* the first may hold the key */
				outgrown = old;
			else
				free(old.data);
		} else if (!turn_again(ret, handle, &started)) {
			break;
		}
	}
	free(outgrown.data);
	return settle(s, ret);
}

/* ---- opening and closing ---- */

/* Says to who looks at it what the file is. Programs lock it, and it goes where the other one goes. */
static void mark(int dir)
{
	static const char text[] = "flashdbm: the records of this database are in the .pag file\n";

	if (lseek(dir, 0, SEEK_END) == 0)
		(void)!pwrite(dir, text, sizeof text - 1, 0);
}

static DBM *open_handle(const char *name, int flags, mode_t mode, int truncate)
{
	DBM *db = calloc(1, sizeof *db);
	struct state *s = calloc(1, sizeof *s);
	const struct engine *e;
	double started = 0;
	int handle, ret = -1, failure;

	if (db == NULL || s == NULL || files_open(name, flags, mode, &s->shared, &s->pair) != 0) {
		failure = errno;
		free(s);
		free(db);
		errno = failure;
		return NULL;
	}
	s->read_only = (flags & O_ACCMODE) == O_RDONLY;
	db->state = s;
	db->dirf = s->pair->dir;
	db->pagf = s->pair->pag;
	db->flags = flags;
	do {
		handle = files_engine_handle(s->shared);
		e = handle > 0 ? engine_get() : NULL;
		if (e == NULL) {
			ret = -errno;
			break;
		}
		if (turn_begin() != 0) {
			ret = -errno;
			break;
		}
		ret = truncate ? e->truncate(handle) : e->start(handle);
		turn_end();
	} while (turn_again(ret, handle, &started));
	if (settle(s, ret) != 0) {
		failure = errno;
		files_close(s->shared, s->pair);
		free(s);
		free(db);
		errno = failure;
		return NULL;
	}
	if (!s->read_only)
		mark(db->dirf);
	return db;
}

DBM *dbm_open(const char *name, int flags, mode_t mode)
{
	DBM *db;
	int truncate = flags & O_TRUNC;

	if (name == NULL) {
		errno = EINVAL;
		return NULL;
	}
	flags &= ~(O_TRUNC | O_APPEND);
	if ((flags & O_ACCMODE) == O_WRONLY)
		flags = (flags & ~O_ACCMODE) | O_RDWR;
	if (truncate && (flags & O_ACCMODE) == O_RDONLY) {
		db = open_handle(name, flags | O_RDWR, mode, truncate);
		if (db == NULL)
			return NULL;
		dbm_close(db);
		flags &= ~(O_CREAT | O_EXCL);
		truncate = 0;
	}
	return open_handle(name, flags, mode, truncate);
}

void dbm_close(DBM *db)
{
	struct state *s = state_of(db);
	int saved = errno;

	if (s == NULL)
		return;
	files_close(s->shared, s->pair);
	free(s->value.data);
	free(s->key.data);
	free(s->last.data);
	free(s);
	free(db);
	errno = saved;
}

/* ---- records ---- */

datum dbm_fetch(DBM *db, datum key)
{
	struct state *s = state_of(db);
	size_t size;

	if (s == NULL || !valid(key) || ask(s, FETCH, key.dptr, SIZE_OF(key), &s->value, &size) != 1)
		return none();
	if (size > LARGEST) {
		errno = EOVERFLOW;
		return none();
	}
	return found(&s->value, size);
}

/* Whether a handle may write: not if it was opened for reading, whatever others may. */
static int writable(struct state *s)
{
	if (!s->read_only)
		return 1;
	errno = EPERM;
	return 0;
}

int dbm_store(DBM *db, datum key, datum value, int mode)
{
	struct state *s = state_of(db);
	const struct engine *e;
	double started = 0;
	int handle, ret;

	if (s == NULL || !writable(s) || !valid(key) || !valid(value))
		return -1;
	if (mode != DBM_INSERT && mode != DBM_REPLACE) {
		errno = EINVAL;
		return -1;
	}
	do {
		handle = files_engine_handle(s->shared);
		e = handle > 0 ? engine_get() : NULL;
		if (e == NULL)
			return settle(s, -errno);
		if (turn_begin() != 0)
			return settle(s, -errno);
		ret = e->store(handle, key.dptr, SIZE_OF(key), value.dptr, SIZE_OF(value), mode == DBM_INSERT);
		turn_end();
	} while (turn_again(ret, handle, &started));
	ret = settle(s, ret);
	return ret < 0 ? -1 : !ret;
}

int dbm_delete(DBM *db, datum key)
{
	struct state *s = state_of(db);
	const struct engine *e;
	double started = 0;
	int handle, ret;

	if (s == NULL || !writable(s) || !valid(key))
		return -1;
	do {
		handle = files_engine_handle(s->shared);
		e = handle > 0 ? engine_get() : NULL;
		if (e == NULL)
			return settle(s, -errno);
		if (turn_begin() != 0)
			return settle(s, -errno);
		ret = e->remove(handle, key.dptr, SIZE_OF(key));
		turn_end();
	} while (turn_again(ret, handle, &started));
	ret = settle(s, ret);
	return ret == 1 ? 0 : -1;
}

/* ---- iteration ---- */

/* Moves to the first key, or to the one after a given key. */
static datum move(struct state *s, enum question q, const char *from, size_t from_size)
{
	struct buffer old;
	size_t size;
	int ret = ask(s, q, from, from_size, &s->key, &size);

	if (ret == 0)
		s->place = AT_END;
	if (ret != 1)
		return none();
	if (size > LARGEST) {
		errno = EOVERFLOW;
		return none();
	}
	if (s->last.room <= size) {
		if (make_room(&s->last, size, &old) != 0)
			return none();
		free(old.data);
	}
	memcpy(s->last.data, s->key.data, size);
	s->last_size = size;
	s->place = ON_KEY;
	return found(&s->key, size);
}

datum dbm_firstkey(DBM *db)
{
	struct state *s = state_of(db);

	return s == NULL ? none() : move(s, FIRST, NULL, 0);
}

datum dbm_nextkey(DBM *db)
{
	struct state *s = state_of(db);

	if (s == NULL || s->place == AT_END)
		return none();
	if (s->place == NOT_BEGUN)
		return move(s, FIRST, NULL, 0);
	return move(s, AFTER, s->last.data, s->last_size);
}

datum flashdbm_key_after(DBM *db, datum key)
{
	struct state *s = state_of(db);

	return s == NULL || !valid(key) ? none() : move(s, AFTER, key.dptr, SIZE_OF(key));
}

/* ---- the rest ---- */

int dbm_error(DBM *db)
{
	return db == NULL || db->state == NULL || ((struct state *)db->state)->failed;
}

int dbm_clearerr(DBM *db)
{
	if (db != NULL && db->state != NULL)
		((struct state *)db->state)->failed = 0;
	return 0;
}

int dbm_dirfno(DBM *db)
{
	if (db != NULL)
		return db->dirf;
	errno = EINVAL;
	return -1;
}

int dbm_pagfno(DBM *db)
{
	if (db != NULL)
		return db->pagf;
	errno = EINVAL;
	return -1;
}

int dbm_rdonly(DBM *db)
{
	return db != NULL && (db->flags & O_ACCMODE) == O_RDONLY;
}

/* ---- other names ---- */

#define ALIAS(of) __attribute__((alias(#of)))

#ifdef FLASHDBM_INT_DSIZE
/* What Berkeley DB's ndbm.h makes of the names. */
DBM *__db_ndbm_open(const char *name, int flags, mode_t mode) ALIAS(dbm_open);
void __db_ndbm_close(DBM *db) ALIAS(dbm_close);
datum __db_ndbm_fetch(DBM *db, datum key) ALIAS(dbm_fetch);
int __db_ndbm_store(DBM *db, datum key, datum value, int mode) ALIAS(dbm_store);
int __db_ndbm_delete(DBM *db, datum key) ALIAS(dbm_delete);
datum __db_ndbm_firstkey(DBM *db) ALIAS(dbm_firstkey);
datum __db_ndbm_nextkey(DBM *db) ALIAS(dbm_nextkey);
int __db_ndbm_error(DBM *db) ALIAS(dbm_error);
int __db_ndbm_clearerr(DBM *db) ALIAS(dbm_clearerr);
int __db_ndbm_dirfno(DBM *db) ALIAS(dbm_dirfno);
int __db_ndbm_pagfno(DBM *db) ALIAS(dbm_pagfno);
int __db_ndbm_rdonly(DBM *db) ALIAS(dbm_rdonly);
#else
#include "names.h"

DBM *flashdbm_dbm_open(const char *name, int flags, mode_t mode) ALIAS(dbm_open);
void flashdbm_dbm_close(DBM *db) ALIAS(dbm_close);
datum flashdbm_dbm_fetch(DBM *db, datum key) ALIAS(dbm_fetch);
int flashdbm_dbm_store(DBM *db, datum key, datum value, int mode) ALIAS(dbm_store);
int flashdbm_dbm_delete(DBM *db, datum key) ALIAS(dbm_delete);
datum flashdbm_dbm_firstkey(DBM *db) ALIAS(dbm_firstkey);
datum flashdbm_dbm_nextkey(DBM *db) ALIAS(dbm_nextkey);
int flashdbm_dbm_error(DBM *db) ALIAS(dbm_error);
int flashdbm_dbm_clearerr(DBM *db) ALIAS(dbm_clearerr);
int flashdbm_dbm_dirfno(DBM *db) ALIAS(dbm_dirfno);
int flashdbm_dbm_pagfno(DBM *db) ALIAS(dbm_pagfno);
int flashdbm_dbm_rdonly(DBM *db) ALIAS(dbm_rdonly);
#endif
