/* The conformance program of ndbm.h. */
#include "tap.h"

#include "checks.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	int n = open_checks_count + record_checks_count + process_checks_count + host_checks_count, at = 0;
	static struct check *all;

	all = calloc((size_t)n, sizeof *all);

#define TAKE(table) (memcpy(all + at, table, sizeof *all * (size_t)table##_count), at += table##_count)
	TAKE(open_checks);
	TAKE(record_checks);
	TAKE(process_checks);
	TAKE(host_checks);
	return run_checks(argc, argv, all, n);
}
