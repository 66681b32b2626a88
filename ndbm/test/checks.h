/* The checks of ndbm.h, by what they are about. */
#ifndef CHECKS_H
#define CHECKS_H

#define CHECK_TABLE(name) extern const struct check name[]; extern const int name##_count

CHECK_TABLE(open_checks);
CHECK_TABLE(record_checks);
CHECK_TABLE(fetch_checks);
CHECK_TABLE(process_checks);
CHECK_TABLE(host_checks);

#define END_TABLE(name) const int name##_count = sizeof name / sizeof name[0]

#endif
