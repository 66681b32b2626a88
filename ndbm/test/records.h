/* What the checks have in common: datums, and records that can be told apart. */
#ifndef RECORDS_H
#define RECORDS_H

#include "library.h"
#include "tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define NAME "db"

static inline datum bytes(const void *p, size_t n)
{
	datum d;

	d.dptr = (char *)p;
	d.dsize = n;
	return d;
}

static inline datum text(const char *s) { return bytes(s, strlen(s)); }

static inline int is(datum d, const char *s)
{
	return d.dptr != NULL && (size_t)d.dsize == strlen(s) && memcmp(d.dptr, s, strlen(s)) == 0;
}

static inline DBM *open_new(void)
{
	DBM *db = dbm_open(NAME, O_RDWR | O_CREAT, 0666);

	CHECK(db != NULL);
	return db;
}

static inline DBM *open_with(int flags)
{
	DBM *db = dbm_open(NAME, flags, 0666);

	CHECK(db != NULL);
	return db;
}

static inline void put(DBM *db, const char *key, const char *value)
{
	CHECK(dbm_store(db, text(key), text(value), DBM_REPLACE) == 0);
}

/* Record i of a test. */
static inline void put_number(DBM *db, int i)
{
	char key[32], value[64];

	snprintf(key, sizeof key, "key%d", i);
	snprintf(value, sizeof value, "the value of record %d", i);
	put(db, key, value);
}

static inline int has_number(DBM *db, int i)
{
	char key[32], value[64];

	snprintf(key, sizeof key, "key%d", i);
	snprintf(value, sizeof value, "the value of record %d", i);
	return is(dbm_fetch(db, text(key)), value);
}

static inline int count(DBM *db)
{
	int n = 0;
	datum k;

	for (k = dbm_firstkey(db); k.dptr != NULL && n < 1000000; k = dbm_nextkey(db))
		n++;
	return n;
}

#endif
