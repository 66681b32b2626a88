/* What the two interfaces share. */
#ifndef FLASHDBM_FRONT_H
#define FLASHDBM_FRONT_H

#include "../include/ndbm.h"

#include <limits.h>
#include <stdint.h>

/*
 * FLASHDBM_INT_DSIZE: the program was compiled with headers whose datum has an int dsize, as those of GDBM and Berkeley DB. It is passed
 * in the same registers, but the upper half of the size's holds whatever was there, and the program reads the lower half of ours.
 */
#ifdef FLASHDBM_INT_DSIZE
#define SIZE_OF(d) ((size_t)(uint32_t)(d).dsize)
#define LARGEST ((size_t)INT_MAX)
#else
#define SIZE_OF(d) ((d).dsize)
#define LARGEST (SIZE_MAX / 2)
#endif

/* The key after a given one, which the iteration goes on from. Not for programs. */
datum flashdbm_key_after(DBM *db, datum key);

#endif
