/*
 * Another header that defines datum, before ours or behind them: -DBEFORE or -DBEHIND, with the type of its dsize. One that looks at DATUM
 * and has a size_t can be used with ours in any order; with an int, as GDBM's and Berkeley DB's, only behind ours, and else it must not
 * compile: the library would read the upper half of a register that nobody has set.
 */
#if defined(BEFORE)
#include <stddef.h>
#define DATUM
typedef struct {
	char *dptr;
	BEFORE dsize;
} datum;
#endif

#include <ndbm.h>
#include <dbm.h>

#if defined(BEHIND) && !defined(DATUM)
typedef struct {
	char *dptr;
	BEHIND dsize;
} datum;
#endif

#include <fcntl.h>

int main(void)
{
	char key[] = "k", value[] = "value";
	datum k, v;
	DBM *db = dbm_open("foreign", O_RDWR | O_CREAT, 0666);

	k.dptr = key;
	k.dsize = 1;
	v.dptr = value;
	v.dsize = 5;
	if (db == NULL || dbm_store(db, k, v, DBM_REPLACE) != 0 || dbm_fetch(db, k).dsize != 5)
		return 1;
	dbm_close(db);
	return dbminit("foreign") != 0 || fetch(k).dsize != 5 || dbmclose() != 0;
}
