/* Internal interface of the runtime on the PULP SDK (pmsis). */
#ifndef SDK_H
#define SDK_H

#include <stdint.h>

#include "deeploy_rt.h"

/* Bytes of L1 that the target reserves for stacks and the SDK's own variables. */
#ifndef L1_RESERVED_BYTES
#define L1_RESERVED_BYTES 16384
#endif

enum { TICKETS = 8 };

/* Addresses in HyperRAM lie below this one, those of every memory on the chip do not. */
#define ON_CHIP 0x10000000u

/* The weight memory of N-EUREKA; cores and DMA reach it, too. */
#define WEIGHT_MEMORY 0x10400000u
#define WEIGHT_MEMORY_BYTES 0x00800000u

/* A compiler barrier; the cores themselves keep their accesses in order. */
static inline void order_memory(void) {
    __asm__ volatile("" ::: "memory");
}

/* Prints one line that begins with "error:" and ends with status 1. Fabric controller only. */
void sdk_fail(const char *what) __attribute__((noreturn));

/* Opens the devices, checks the machine's table and allocates the arenas. Call it before any function of deeploy_rt.h.
 */
void sdk_set_up(void);

/* Copies bytes from L2 to an offset in the constants of a far level. Call it before the network is initialised. */
void sdk_store_constants(int level, uint32_t offset, void *from, uint32_t bytes);

/* Memory in L2 beside the arena; never given back. */
void *sdk_allocate(uint32_t bytes);

/* The cluster. Its memory is handed out in the order of the calls: the arena first, the stacks get what is left. */
void cluster_open(void);
void *cluster_allocate(uint32_t bytes); /* a null pointer when there is too little */
void cluster_make_stacks(void);

/* The deepest use of a core's stack, and the stack's size, in bytes. */
uint32_t cluster_stack_used(int core);
uint32_t cluster_stack_bytes(int core);

/* The cluster DMA, between the L1 arena and anything else; core 0. */
void dma_start(int ticket, const struct rt_transfer *transfer, int is_to_l1);
void dma_wait(int ticket);

/* N-EUREKA; jobs are begun and waited for by core 0. */
void neureka_power_up(void);

/* HyperRAM, to and from L2; core 0. */
void ram_start(int ticket, const struct rt_transfer *transfer, int is_read);
void ram_wait(int ticket);

/* The controller's part: opens it and takes bytes from its beginning, whose address is the result; writes it at once.
 */
uint32_t ram_open(uint32_t bytes);
void ram_store(uint32_t to, void *from, uint32_t bytes);

#endif
