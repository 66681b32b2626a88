/* The library under test: ours, by its public headers and nothing else, or one that it is compared with. */
#ifndef LIBRARY_H
#define LIBRARY_H

#if defined(LIBRARY_BERKELEY)
#define DB_DBM_HSEARCH 1
#include <db.h>
#elif defined(LIBRARY_SDBM)
#include "config.h"
#include "sdbm.h"
#define dbm_dirfno sdbm_dirfno
#define dbm_pagfno sdbm_pagfno
#elif defined(LIBRARY_GDBM)
#include <gdbm-ndbm.h>
#else
#define LIBRARY_FLASHDBM
#include <ndbm.h>
#endif

#endif
