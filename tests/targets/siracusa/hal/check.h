/* What the parts of the test share. They run on core 0 of the cluster. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>

#include "deeploy_rt.h"

enum { L1, L2, L3 };
enum { DMA, RAM };

/* Prints "check NAME ok" or "check NAME WRONG", and remembers the latter. */
void check(const char *name, int is_right);

/* Prints "cycles NAME NUMBER". */
void report(const char *name, uint32_t cycles);

/* Bytes that differ from one seed to another and from place to place. */
void fill(rt_address at, uint32_t bytes, uint32_t seed);

/* Every byte at `at` is what fill wrote at its offset `from` with that seed. */
int is_filled(rt_address at, uint32_t bytes, uint32_t from, uint32_t seed);

void test_memory(void);
void test_team(void);
void test_dma(void);
void test_ram(void);

#endif
