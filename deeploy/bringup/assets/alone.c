#include "alone.h"

#include <sanitizer/asan_interface.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

enum { ROOM = 1 << 22, APART = 64, PIECES = 32, JOBS = 2 };

struct job {
    struct host_range to;
    unsigned char *result;
};

static _Alignas(64) unsigned char arena[ROOM];
static size_t used, sizes[PIECES];
static unsigned char *pieces[PIECES];
static struct job jobs[JOBS];
static int count, under_way;
int core;

_Noreturn void host_violation(const char *rule, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "error: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ". %s\n", rule);
    exit(HOST_VIOLATION);
}

void alone_begin(void) {
    used = 0, count = 0, core = 0;
    __asan_poison_memory_region(arena, sizeof arena);
}

void *alone_take(FILE *in, size_t bytes) {
    unsigned char *const begin = arena + used + APART;
    used += APART + (bytes + 15) / 16 * 16;
    if (used > ROOM - APART || count == PIECES) exit(4);
    __asan_unpoison_memory_region(begin, bytes);
    pieces[count] = begin, sizes[count++] = bytes;
    if (fread(begin, 1, bytes, in) != bytes) exit(3);
    return begin;
}

/* Where a run of a range lies. */
static unsigned char *run_at(const struct host_range *r, uint32_t row, uint32_t column) {
    const uint32_t address = r->address + row * r->row_pitch + column * r->column_pitch;
    for (int i = 0; i < count; i++) {
        const uint32_t offset = address - (uint32_t)(uintptr_t)pieces[i];
        if (offset < sizes[i] && r->bytes <= sizes[i] - offset) return pieces[i] + offset;
    }
    host_violation("A job touches its operands only.", "a run of %u bytes of %s, row %u, column %u, lies outside", r->bytes,
                   r->name, row, column);
}

/* All runs of a range, copied to or from bytes that follow each other. */
static void copy(const struct host_range *r, unsigned char *packed, int is_written) {
    for (uint32_t row = 0; row < r->rows && r->bytes; row++) {
        for (uint32_t column = 0; column < r->columns; column++, packed += r->bytes) {
            if (is_written)
                memcpy(run_at(r, row, column), packed, r->bytes);
            else
                memcpy(packed, run_at(r, row, column), r->bytes);
        }
    }
}

void rt_job_wait(int accelerator) {
    (void)accelerator;
    if (!under_way) return;
    copy(&jobs[0].to, jobs[0].result, 1);
    free(jobs[0].result);
    memmove(jobs, jobs + 1, sizeof jobs - sizeof *jobs);
    under_way--;
}

void alone_end(void) {
    while (under_way) rt_job_wait(0);
}

void rt_job(int accelerator, const uint32_t *registers, int numbers) {
    struct host_range ranges[NPU_RANGES];
    unsigned char *packed[NPU_RANGES] = {0};
    if (under_way == JOBS) rt_job_wait(accelerator);
    const int last = npu_ranges(registers, numbers, ranges) - 1;
    for (int i = 0; i <= last; i++) {
        packed[i] = malloc((size_t)ranges[i].rows * ranges[i].columns * ranges[i].bytes + 1);
        if (!packed[i]) abort();
        copy(&ranges[i], packed[i], 0);
    }
    npu_compute(registers, packed, packed[last]);
    for (int i = 0; i < last; i++) free(packed[i]);
    jobs[under_way++] = (struct job){ranges[last], packed[last]};
}

int rt_core(void) {
    return core;
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    for (core = 0; core < cores; core++) body(argument);
    core = 0;
}
