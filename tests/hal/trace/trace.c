/* What a program does to the memories of the machine, as one number: every load, store, transfer, job, fork and wait.
 *
 * Sources are compiled with -fsanitize=thread, which calls a function at every load and store; these functions are here
 * instead of in the sanitizer's library. The calls of deeploy_rt.h come by way of -Wl,--wrap. Addresses count as memory and
 * offset, since memories lie elsewhere in every run; what lies in no memory of the machine, as a core's stack, does not count.
 * A wait counts where something was started under its ticket. Events of one core are in their order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

enum { CORES = 64, TICKETS = 64, ENGINES = 16 };

static uint64_t traces[CORES]; /* outside of a team works core 0 */
static uint64_t effects[CORES]; /* the same without loads */
static int is_load;
static int is_inside = 1; /* nothing counts: the memories are not there yet, or this file itself is at work */
static int started[ENGINES][TICKETS];

static void count(uint64_t value) {
    const int core = host_team_core();
    uint64_t *const trace = &traces[core < 0 ? 0 : core % CORES];
    uint64_t *const effect = &effects[core < 0 ? 0 : core % CORES];
    for (int byte = 0; byte < 8; byte++) {
        *trace = (*trace ^ (value >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
        if (!is_load) *effect = (*effect ^ (value >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
    }
}

/* Counts a place; 0 where it lies in no memory of the machine. */
static int count_place(rt_address address) {
    struct host_place place;
    if (!host_find(address, &place)) return 0;
    count((uint64_t)place.space.level << 40 | (uint64_t)place.space.kind << 32 | place.space.salt);
    count(place.offset);
    return 1;
}

static void access_memory(void *address, uint64_t kind, uint64_t bytes) {
    if (is_inside) return;
    is_inside = 1, is_load = kind == 1;
    if (count_place((rt_address)address)) count(kind << 32 | bytes);
    is_inside = is_load = 0;
}

#define ACCESS(bytes)                                                        \
    void __tsan_read##bytes(void *address) { access_memory(address, 1, bytes); }  \
    void __tsan_write##bytes(void *address) { access_memory(address, 2, bytes); } \
    void __tsan_unaligned_read##bytes(void *address) { access_memory(address, 1, bytes); }  \
    void __tsan_unaligned_write##bytes(void *address) { access_memory(address, 2, bytes); } \
    void __tsan_volatile_read##bytes(void *address) { access_memory(address, 1, bytes); }  \
    void __tsan_volatile_write##bytes(void *address) { access_memory(address, 2, bytes); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(void *address, unsigned long bytes) { access_memory(address, 1, bytes); }
void __tsan_write_range(void *address, unsigned long bytes) { access_memory(address, 2, bytes); }
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}

static void report(void) {
    uint64_t all = 0, stores = 0;
    for (int core = 0; core < CORES; core++) {
        all = all * UINT64_C(0x9e3779b97f4a7c15) + traces[core];
        stores = stores * UINT64_C(0x9e3779b97f4a7c15) + effects[core];
    }
    fprintf(stderr, "trace %016" PRIx64 " effects %016" PRIx64 "\n", all, stores);
}

void __tsan_init(void) {
    static int is_registered;
    if (!is_registered++) atexit(report);
}

void __real_host_open(uint64_t seed);
void __real_rt_start(int engine, int ticket, const struct rt_transfer *transfer);
void __real_rt_wait(int engine, int ticket);
void __real_rt_job(int accelerator, const uint32_t *registers, int count);
void __real_rt_job_wait(int accelerator);
void __real_rt_fork(int cores, void (*body)(void *), void *argument);
void __real_rt_barrier(void);
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int value, size_t bytes);

void __wrap_host_open(uint64_t seed) {
    __real_host_open(seed);
    is_inside = 0;
}

void __wrap_rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    is_inside = 1;
    count(3);
    count((uint64_t)engine << 32 | (uint32_t)ticket);
    count_place(transfer->to);
    count_place(transfer->from);
    count((uint64_t)transfer->bytes << 32 | transfer->rows);
    if (transfer->rows > 1) count((uint64_t)transfer->to_pitch << 32 | transfer->from_pitch);
    if (engine >= 0 && engine < ENGINES && ticket >= 0 && ticket < TICKETS) started[engine][ticket] = 1;
    is_inside = 0;
    __real_rt_start(engine, ticket, transfer);
}

void __wrap_rt_wait(int engine, int ticket) {
    is_inside = 1;
    if (engine >= 0 && engine < ENGINES && ticket >= 0 && ticket < TICKETS && started[engine][ticket]) {
        count(4);
        count((uint64_t)engine << 32 | (uint32_t)ticket);
        started[engine][ticket] = 0;
    }
    is_inside = 0;
    __real_rt_wait(engine, ticket);
}

/* Registers may hold the low half of an address. */
void __wrap_rt_job(int accelerator, const uint32_t *registers, int number) {
    is_inside = 1;
    count(5);
    count((uint64_t)accelerator);
    for (int i = 0; i < number; i++) {
        int level = 0;
        while (level < rt_machine.levels && registers[i] - (uint32_t)rt_arena(level) >= rt_machine.level[level].capacity) level++;
        count(level < rt_machine.levels ? (uint64_t)(level + 1) << 32 | (registers[i] - (uint32_t)rt_arena(level)) : registers[i]);
    }
    is_inside = 0;
    __real_rt_job(accelerator, registers, number);
}

void __wrap_rt_job_wait(int accelerator) {
    count(6);
    __real_rt_job_wait(accelerator);
}

void __wrap_rt_fork(int cores, void (*body)(void *), void *argument) {
    if (cores > 1) { /* a team of one is a call */
        count(7);
        count((uint64_t)cores);
    }
    __real_rt_fork(cores, body, argument);
}

void __wrap_rt_barrier(void) {
    count(8);
    __real_rt_barrier();
}

void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    access_memory((void *)(uintptr_t)from, 1, bytes);
    access_memory(to, 2, bytes);
    return __real_memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, size_t bytes) {
    access_memory((void *)(uintptr_t)from, 1, bytes);
    access_memory(to, 2, bytes);
    return __real_memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, size_t bytes) {
    access_memory(to, 2, bytes);
    return __real_memset(to, value, bytes);
}
