/*
 * The dbm_ names in libdbm, which programs link for both interfaces: they lead to libndbm, so that a process that has both libraries has
 * one table of open files.
 */
#include "front.h"

#include "names.h"

DBM *dbm_open(const char *name, int flags, mode_t mode) { return flashdbm_dbm_open(name, flags, mode); }
void dbm_close(DBM *db) { flashdbm_dbm_close(db); }
datum dbm_fetch(DBM *db, datum key) { return flashdbm_dbm_fetch(db, key); }
int dbm_store(DBM *db, datum key, datum value, int mode) { return flashdbm_dbm_store(db, key, value, mode); }
int dbm_delete(DBM *db, datum key) { return flashdbm_dbm_delete(db, key); }
datum dbm_firstkey(DBM *db) { return flashdbm_dbm_firstkey(db); }
datum dbm_nextkey(DBM *db) { return flashdbm_dbm_nextkey(db); }
int dbm_error(DBM *db) { return flashdbm_dbm_error(db); }
int dbm_clearerr(DBM *db) { return flashdbm_dbm_clearerr(db); }
int dbm_dirfno(DBM *db) { return flashdbm_dbm_dirfno(db); }
int dbm_pagfno(DBM *db) { return flashdbm_dbm_pagfno(db); }
int dbm_rdonly(DBM *db) { return flashdbm_dbm_rdonly(db); }
