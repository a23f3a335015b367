/* What a program does to the memories of the machine, as one number: every load, store, transfer, job, fork and wait.
 *
 * Sources are compiled with -fsanitize=thread, which calls a function at every load and store; these functions are here
 * instead of in the sanitizer's library. The calls of deeploy_rt.h come by way of -Wl,--wrap. Addresses count as memory
 * and offset, since memories lie elsewhere in every run; what lies in no memory of the machine, as a core's stack, does
 * not count. A wait counts where something was started under its ticket. Events of one core are in their order.
 *
 * Besides, bytes are counted that are loaded, or transferred, while they hold the garbage that the model filled memory
 * with, and that no store and no transfer has written. What accelerators write is not seen: of 256 such bytes, one is
 * by chance what the garbage was.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

void __real_host_open(uint64_t seed);
void __real_host_poison(const struct host_space *space, int64_t offset, uint64_t bytes);
void __real_rt_start(int engine, int ticket, const struct rt_transfer *transfer);
void __real_rt_wait(int engine, int ticket);
void __real_rt_job(int accelerator, const uint32_t *registers, int count);
void __real_rt_job_wait(int accelerator);
void __real_rt_fork(int cores, void (*body)(void *), void *argument);
void __real_rt_barrier(void);
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int value, size_t bytes);

enum { CORES = 64, TICKETS = 64, ENGINES = 16, LEVELS = 16 };

static uint64_t traces[CORES]; /* outside of a team works core 0 */
static uint64_t garbage;
static int is_inside = 1; /* nothing counts: the memories are not there yet, or this file itself is at work */
static int started[ENGINES][TICKETS];

static void count(uint64_t value) {
    const int core = host_team_core();
    uint64_t *const trace = &traces[core < 0 ? 0 : core % CORES];
    for (int byte = 0; byte < 8; byte++) *trace = (*trace ^ (value >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
}

/* Counts a place; 0 where it lies in no memory of the machine. */
static int count_place(rt_address address) {
    struct host_place place;
    if (!host_find(address, &place)) return 0;
    count((uint64_t)place.space.level << 40 | (uint64_t)place.space.kind << 32 | place.space.salt);
    count(place.offset);
    return 1;
}

/* For every byte of a level's arena, whether a core or a transfer has written it since it was filled with garbage. */
static unsigned char *written_of(int level) {
    static unsigned char *written[LEVELS];
    if (level >= LEVELS) abort();
    if (!written[level]) written[level] = calloc(rt_machine.level[level].capacity + 1u, 1);
    if (!written[level]) abort();
    return written[level];
}

/* The bytes from a place on, at most so many, that its arena has. */
static uint64_t within(const struct host_place *place, uint64_t bytes) {
    const uint64_t left = place->space.bytes - place->offset;
    return bytes < left ? bytes : left;
}

static void mark_written(rt_address address, uint64_t bytes) {
    struct host_place place;
    if (!host_find(address, &place) || place.space.kind != HOST_ARENA) return;
    __real_memset(written_of(place.space.level) + place.offset, 1, within(&place, bytes));
}

/* Counts those of the bytes from an address on that still hold garbage. */
static void count_garbage(rt_address address, uint64_t bytes) {
    struct host_place place;
    if (!host_find(address, &place) || place.space.kind != HOST_ARENA) return;
    const unsigned char *const written = written_of(place.space.level);
    const uint64_t end = place.offset + within(&place, bytes);
    for (uint64_t at = place.offset; at < end; at++)
        garbage += !written[at] && host_intact(&place.space, (int64_t)at, 1) == 1;
}

static void access_memory(void *address, uint64_t kind, uint64_t bytes) {
    if (is_inside || !bytes) return;
    is_inside = 1;
    if (count_place((rt_address)address)) count(kind << 32 | bytes);
    if (kind == 1)
        count_garbage((rt_address)address, bytes);
    else
        mark_written((rt_address)address, bytes);
    is_inside = 0;
}

#define ACCESS(bytes)                                   \
    void __tsan_read##bytes(void *address) {            \
        access_memory(address, 1, bytes);               \
    }                                                   \
    void __tsan_write##bytes(void *address) {           \
        access_memory(address, 2, bytes);               \
    }                                                   \
    void __tsan_unaligned_read##bytes(void *address) {  \
        access_memory(address, 1, bytes);               \
    }                                                   \
    void __tsan_unaligned_write##bytes(void *address) { \
        access_memory(address, 2, bytes);               \
    }                                                   \
    void __tsan_volatile_read##bytes(void *address) {   \
        access_memory(address, 1, bytes);               \
    }                                                   \
    void __tsan_volatile_write##bytes(void *address) {  \
        access_memory(address, 2, bytes);               \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(void *address, unsigned long bytes) {
    access_memory(address, 1, bytes);
}
void __tsan_write_range(void *address, unsigned long bytes) {
    access_memory(address, 2, bytes);
}
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void) {}

static void report(void) {
    uint64_t all = 0;
    for (int core = 0; core < CORES; core++) all = all * UINT64_C(0x9e3779b97f4a7c15) + traces[core];
    fprintf(stderr, "trace %016" PRIx64 " garbage %" PRIu64 "\n", all, garbage);
}

void __tsan_init(void) {
    static int is_registered;
    if (!is_registered++) atexit(report);
}

void __wrap_host_open(uint64_t seed) {
    __real_host_open(seed);
    is_inside = 0;
}

/* The same garbage in every inference, so that it is known again. */
void __wrap_host_new_poison(void) {}

void __wrap_host_poison(const struct host_space *space, int64_t offset, uint64_t bytes) {
    __real_host_poison(space, offset, bytes);
    if (is_inside || space != host_arena(space->level)) return;
    const int64_t begin = offset < 0 ? 0 : offset, last = offset + (int64_t)bytes;
    const int64_t end = last < (int64_t)space->bytes ? last : (int64_t)space->bytes;
    if (begin < end) __real_memset(written_of(space->level) + begin, 0, (size_t)(end - begin));
}

void __wrap_rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    is_inside = 1;
    count(3);
    count((uint64_t)engine << 32 | (uint32_t)ticket);
    count_place(transfer->to);
    count_place(transfer->from);
    count((uint64_t)transfer->bytes << 32 | transfer->rows);
    if (transfer->rows > 1) count((uint64_t)transfer->to_pitch << 32 | transfer->from_pitch);
    for (uint32_t row = 0; row < transfer->rows || !row; row++) {
        count_garbage(transfer->from + (rt_address)row * transfer->from_pitch, transfer->bytes);
        mark_written(transfer->to + (rt_address)row * transfer->to_pitch, transfer->bytes);
    }
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

/* Counts what a register holds, which may be the low half of an address of an arena or of constants. */
static void count_register(uint32_t value) {
    for (int level = 0; level < rt_machine.levels; level++) {
        const struct rt_level *const l = &rt_machine.level[level];
        if (value - (uint32_t)rt_arena(level) < l->capacity) {
            count((uint64_t)(2 * level + 1) << 32 | (value - (uint32_t)rt_arena(level)));
            return;
        }
        if (l->is_far && l->constants && value - (uint32_t)rt_constants(level) < l->constants) {
            count((uint64_t)(2 * level + 2) << 32 | (value - (uint32_t)rt_constants(level)));
            return;
        }
    }
    count(value);
}

void __wrap_rt_job(int accelerator, const uint32_t *registers, int number) {
    is_inside = 1;
    count(5);
    count((uint64_t)accelerator);
    for (int i = 0; i < number; i++) count_register(registers[i]);
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
