/* Second names of the functions of ndbm.h, which nothing else has: by them libdbm finds those of libndbm. */
#ifndef FLASHDBM_NAMES_H
#define FLASHDBM_NAMES_H

DBM *flashdbm_dbm_open(const char *name, int flags, mode_t mode);
void flashdbm_dbm_close(DBM *db);
datum flashdbm_dbm_fetch(DBM *db, datum key);
int flashdbm_dbm_store(DBM *db, datum key, datum value, int mode);
int flashdbm_dbm_delete(DBM *db, datum key);
datum flashdbm_dbm_firstkey(DBM *db);
datum flashdbm_dbm_nextkey(DBM *db);
int flashdbm_dbm_error(DBM *db);
int flashdbm_dbm_clearerr(DBM *db);
int flashdbm_dbm_dirfno(DBM *db);
int flashdbm_dbm_pagfno(DBM *db);
int flashdbm_dbm_rdonly(DBM *db);

#endif
