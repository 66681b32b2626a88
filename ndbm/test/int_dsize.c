/*
 * A program that was compiled with a datum whose dsize is an int, as GDBM's and Berkeley DB's headers have it, and that leaves rubbish in the
 * upper half of the register which it is passed in; as what it is passed in is known, it is written out here. Runs with the library to preload.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

struct reply { /* comes back in two registers */
	char *dptr;
	int64_t dsize;
};

void *dbm_open(const char *, int, mode_t);
void dbm_close(void *);
struct reply dbm_fetch(void *, char *, uint64_t);
int dbm_store(void *, char *, uint64_t, char *, uint64_t, int);
int dbm_delete(void *, char *, uint64_t);
struct reply dbm_firstkey(void *);

#define RUBBISH 0xdeadbeef00000000u

#define CHECK(condition) if (!(condition)) return printf("not ok - int dsize: %s\n", #condition), 1

int main(void)
{
	void *db = dbm_open("int_dsize", O_RDWR | O_CREAT | O_TRUNC, 0644);
	char key[] = "key", value[] = "value";
	struct reply r;

	CHECK(db != NULL);
	CHECK(dbm_store(db, key, RUBBISH | 3, value, RUBBISH | 5, 1) == 0);
	r = dbm_fetch(db, key, RUBBISH | 3);
	CHECK(r.dptr != NULL && (int)r.dsize == 5 && memcmp(r.dptr, "value", 5) == 0);
	r = dbm_firstkey(db);
	CHECK(r.dptr != NULL && (int)r.dsize == 3 && memcmp(r.dptr, "key", 3) == 0);
	errno = 0; /* an int that is negative */
	CHECK(dbm_store(db, key, RUBBISH | 3, value, RUBBISH | 0x80000000u, 1) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(dbm_store(db, key, RUBBISH | 0xffffffffu, value, RUBBISH | 5, 1) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(dbm_fetch(db, key, RUBBISH | 0x80000000u).dptr == NULL && errno == EINVAL);
	dbm_close(db);
	db = dbm_open("int_dsize", O_RDONLY, 0);
	r = dbm_fetch(db, key, RUBBISH | 3);
	CHECK(r.dptr != NULL && (int)r.dsize == 5 && memcmp(r.dptr, "value", 5) == 0);
	dbm_close(db);
	db = dbm_open("int_dsize", O_RDWR, 0);
	CHECK(dbm_delete(db, key, RUBBISH | 3) == 0);
	CHECK(dbm_fetch(db, key, RUBBISH | 3).dptr == NULL);
	dbm_close(db);
	puts("ok - a program with an int dsize");
	return 0;
}
