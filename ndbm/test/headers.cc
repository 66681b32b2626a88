// The headers in C++, in both orders and twice.
#include <dbm.h>
#include <ndbm.h>
#include <dbm.h>

#include <fcntl.h>
#include <cstdio>
#include <cstring>

int main()
{
	char key[] = "k", value[] = "v";
	datum k = {key, 1}, v = {value, 1};
	DBM copy_of_a_complete_type;
	(void)copy_of_a_complete_type;
	DBM *db = dbm_open("cxx", O_RDWR | O_CREAT, 0666);
	if (db == nullptr || dbm_store(db, k, v, DBM_REPLACE) != 0 || dbm_fetch(db, k).dsize != 1)
		return std::perror("cxx"), 1;
	dbm_close(db);
	return dbminit("cxx") != 0 || fetch(k).dsize != 1 || dbmclose() != 0;
}
