/* The library under test: ours, by its public headers and nothing else, or one that it is compared with. */
#ifndef LIBRARY_H
#define LIBRARY_H

#if defined(LIBRARY_BERKELEY)
#define DB_DBM_HSEARCH 1
#include <db.h>
#define PAG ".db"
#define DIR_SUFFIX ".db"
#elif defined(LIBRARY_SDBM)
#include "sdbm_names.h"
#elif defined(LIBRARY_GDBM)
#include <gdbm-ndbm.h>
#else
#define LIBRARY_FLASHDBM
#include <ndbm.h>
#endif

#endif
