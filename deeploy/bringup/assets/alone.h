/* A call of a kernel that begins jobs of an accelerator, without a network: cores take turns, jobs write when they are
 * waited for, and memory is one arena whose pieces lie apart, since registers hold the low halves of addresses. */
#ifndef DEEPLOY_ALONE_H
#define DEEPLOY_ALONE_H

#include <stdint.h>
#include <stdio.h>

#include "deeploy_rt.h"

extern int core; /* the calling core */

/* Forgets all pieces. */
void alone_begin(void);

/* A piece of so many bytes, read from a file; nothing else of the arena may be touched. */
void *alone_take(FILE *in, size_t bytes);

/* Waits for the jobs that the kernel left. */
void alone_end(void);

#endif
