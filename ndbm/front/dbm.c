/* The functions of dbm.h: those of ndbm.h with the one open database. */
#include "front.h"

#include "../include/dbm.h"

#include <errno.h>
#include <fcntl.h>

static DBM *current;

static datum nothing_open(void)
{
	datum d = {NULL, 0};

	errno = EBADF;
	return d;
}

int dbminit(const char *name)
{
	dbmclose();
	current = dbm_open(name, O_RDWR, 0);
	if (current == NULL && (errno == EACCES || errno == EROFS || errno == EPERM))
		current = dbm_open(name, O_RDONLY, 0);
	return current == NULL ? -1 : 0;
}

int dbmclose(void)
{
	if (current != NULL)
		dbm_close(current);
	current = NULL;
	return 0;
}

datum fetch(datum key)
{
	return current == NULL ? nothing_open() : dbm_fetch(current, key);
}

int store(datum key, datum value)
{
	if (current != NULL)
		return dbm_store(current, key, value, DBM_REPLACE);
	errno = EBADF;
	return -1;
}

int delete(datum key)
{
	if (current != NULL)
		return dbm_delete(current, key);
	errno = EBADF;
	return -1;
}

datum firstkey(void)
{
	return current == NULL ? nothing_open() : dbm_firstkey(current);
}

datum nextkey(datum key)
{
	return current == NULL ? nothing_open() : flashdbm_key_after(current, key);
}

#ifdef FLASHDBM_INT_DSIZE
/* What Berkeley DB's dbm.h makes of the names. */
#define ALIAS(of) __attribute__((alias(#of)))
int __db_dbm_init(const char *name) ALIAS(dbminit);
int __db_dbm_close(void) ALIAS(dbmclose);
datum __db_dbm_fetch(datum key) ALIAS(fetch);
int __db_dbm_store(datum key, datum value) ALIAS(store);
int __db_dbm_delete(datum key) ALIAS(delete);
datum __db_dbm_firstkey(void) ALIAS(firstkey);
datum __db_dbm_nextkey(datum key) ALIAS(nextkey);
#endif
