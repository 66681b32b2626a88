/*
 * ndbm.h: the interface of Unix ndbm, over flashdbm.
 *
 * A database NAME is the two files NAME.pag and NAME.dir. Functions that fail set errno. A handle is for one thread at a time; any number
 * of handles, of the same database too, can be open. What a function returns a pointer to belongs to the handle: a key is valid until the
 * handle's next dbm_firstkey or dbm_nextkey, a value until its next dbm_fetch, both until dbm_close. See ndbm(3).
 */
#ifndef FLASHDBM_NDBM_H
#define FLASHDBM_NDBM_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DATUM
#define DATUM
typedef struct {
	char *dptr;
	size_t dsize;
} datum;
#endif

/* Another header may have defined DATUM and datum. With an int dsize it will not do: programs for that take the library to preload. */
extern char flashdbm_needs_a_size_t_dsize[sizeof(((datum *)0)->dsize) == sizeof(size_t) ? 1 : -1];

/* An open database. Its fields are not for use. */
typedef struct flashdbm_handle {
	int dirf;
	int pagf;
	int flags;
	void *state;
} DBM;

/* What dbm_store does with a key that exists. */
#define DBM_INSERT 0
#define DBM_REPLACE 1

/* open(2)'s flags and mode. NULL if it fails; EAGAIN: another process is writing and did not let go of the database in time. */
DBM *dbm_open(const char *name, int flags, mode_t mode);
void dbm_close(DBM *db);

/* The value of a key; dptr is NULL if there is none. An empty value has a dptr. */
datum dbm_fetch(DBM *db, datum key);

/* 0, or 1 if the key exists and the mode is DBM_INSERT, or -1. */
int dbm_store(DBM *db, datum key, datum value, int mode);

/* 0, or -1, also if there is no such key. */
int dbm_delete(DBM *db, datum key);

/* The keys in turn, dptr NULL at the end. */
datum dbm_firstkey(DBM *db);
datum dbm_nextkey(DBM *db);

/* Whether reading or writing the files has failed since the handle was opened, or dbm_clearerr called. */
int dbm_error(DBM *db);
int dbm_clearerr(DBM *db);

/* The descriptors of NAME.dir and NAME.pag, for locks of the program's own. */
int dbm_dirfno(DBM *db);
int dbm_pagfno(DBM *db);

/* Whether the handle was opened for reading only. */
int dbm_rdonly(DBM *db);

#ifdef __cplusplus
}
#endif

#endif
