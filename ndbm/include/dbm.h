/*
 * dbm.h: the interface of the first Unix dbm, with one open database, over flashdbm. See dbm(3). The files are those of ndbm.h, and both
 * headers may be used together.
 */
#ifndef FLASHDBM_DBM_H
#define FLASHDBM_DBM_H

#include <stddef.h>

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

/* Opens NAME.pag and NAME.dir, which must exist and may be empty; for reading only, if they cannot be written. 0, or -1. */
int dbminit(const char *name);
int dbmclose(void);

/* The value of a key; dptr is NULL if there is none. */
datum fetch(datum key);

/* 0, or -1. A key that exists gets the new value. */
int store(datum key, datum value);

/* 0, or -1, also if there is no such key. C++ has no way to say this name. */
#ifndef __cplusplus
int delete(datum key);
#endif

/* The first key, and the one after a given key, dptr NULL at the end. */
datum firstkey(void);
datum nextkey(datum key);

#ifdef __cplusplus
}
#endif

#endif
