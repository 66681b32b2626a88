/* The conformance program of ndbm.h. */
#include "tap.h"

#include "checks.h"

#include <string.h>

#define MOST 256

int main(int argc, char **argv)
{
	static struct check all[MOST];
	int at = 0;

#define TAKE(table) (memcpy(all + at, table, sizeof *all * (size_t)table##_count), at += table##_count)
	TAKE(open_checks);
	TAKE(record_checks);
	TAKE(fetch_checks);
	TAKE(process_checks);
	TAKE(host_checks);
	return run_checks(argc, argv, all, at);
}
