/* Functions for applications on this runtime, besides deeploy_rt.h. The application's entry is controller_main. */
#ifndef BARE_H
#define BARE_H

#include <stdint.h>

/* Called by the start-up code on the fabric controller; its result is the exit status. */
int controller_main(void);

/* Checks the machine's table against the memories and starts the cores; before any call of deeploy_rt.h. */
void bare_set_up(void);

/* Copies the constants of the far levels, one level after the other, from a file to where rt_constants says; before the
 * network is initialised. */
void bare_load_constants(const char *path);

/* Memory in L2 beside the arena, at a multiple of 16 bytes; never given back. */
void *bare_allocate(uint32_t bytes);

/* Marks the stacks of all cores but for `in_use` bytes at the top of each; before the cores use more of them. */
void bare_paint_stacks(uint32_t in_use);

/* The deepest use of a core's stack, and the stack's size, in bytes. */
uint32_t bare_stack_used(int core);
uint32_t bare_stack_bytes(int core);

/* With -DRT_CHECKED: called by core 0 in every barrier, when all cores have come (snapshots.h). */
void snapshot_settle(void);

/* Called by the start-up code: ends the simulation, with an error where a stack became full. */
_Noreturn void bare_end(int status);

#endif
