/* Jobs of accelerators, from their start to the wait. Operands are read at the start. Results hold garbage until the
 * job completes, and neither may be touched before the wait. Jobs complete in the order of their starts.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

struct job {
    int accelerator, ranges;
    struct host_range range[NPU_RANGES]; /* the last one is written */
    unsigned char *data[NPU_RANGES];     /* what was read, and what will be written, runs one after the other */
    uint32_t landed;                     /* rows */
};

static struct job **jobs; /* in the order of their starts; they stay until the wait */
static int job_count, job_room;

static struct host_range *written(struct job *job) {
    return &job->range[job->ranges - 1];
}

static uint64_t range_bytes(const struct host_range *r) {
    return (uint64_t)r->rows * r->columns * r->bytes;
}

static int64_t run_offset(const struct host_range *r, uint32_t row, uint32_t column) {
    return r->place.offset + (int64_t)row * r->row_pitch + (int64_t)column * r->column_pitch;
}

static size_t run_index(const struct host_range *r, uint32_t row, uint32_t column) {
    return ((size_t)row * r->columns + column) * r->bytes;
}

/* From the first byte to behind the last one. */
static uint64_t extent(const struct host_range *r) {
    if (!range_bytes(r)) return 0;
    return (uint64_t)(r->rows - 1) * r->row_pitch + (uint64_t)(r->columns - 1) * r->column_pitch + r->bytes;
}

static void describe(const struct job *job, const struct host_range *range, char text[2 * HOST_TEXT]) {
    char where[HOST_TEXT];
    host_describe(&range->place, where);
    snprintf(text, 2 * HOST_TEXT, "a job of %s, whose %s is %" PRIu32 " x %" PRIu32 " x %" PRIu32 " bytes at %s",
             rt_machine.accelerator[job->accelerator].name, range->name, range->rows, range->columns, range->bytes,
             where);
}

/* Registers hold the low halves of addresses. */
static int is_in(const struct host_space *space, uint32_t address, struct host_place *place) {
    const uint32_t offset = address - (uint32_t)space->begin;
    if (offset >= space->bytes) return 0;
    *place = (struct host_place){*space, offset, NULL};
    return 1;
}

static void find(const struct job *job, struct host_range *range) {
    const struct rt_accelerator *a = &rt_machine.accelerator[job->accelerator];
    const int level = range->is_weights ? a->weights : a->near;
    if (level < 0)
        host_violation("An accelerator without a memory of its own for weights reads them near.",
                       "%s: weights at 0x%08" PRIx32, a->name, range->address);
    const struct host_space *arena = host_arena(level);
    range->place = (struct host_place){.space = *arena};
    if (!extent(range)) return;
    if (!is_in(arena, range->address, &range->place) && !is_in(arena + 1, range->address, &range->place))
        host_violation("An accelerator reaches the levels that rt_machine names.",
                       "%s: the address 0x%08" PRIx32 " of %s does not lie in %s", a->name, range->address, range->name,
                       host_level_name(level));
    char what[HOST_TEXT];
    snprintf(what, sizeof what, "%s, %s", a->name, range->name);
    host_check_block(&range->place, extent(range), what);
    const uint64_t end = range->place.offset + extent(range);
    uint32_t *const touched = &host_counters.touched[level];
    if (range->place.space.kind == HOST_ARENA && end > *touched) *touched = (uint32_t)end;
}

/* Whether two sets of runs share a byte. */
static int share(const struct host_range *a, const struct host_range *b) {
    if (a->place.space.begin != b->place.space.begin || !extent(a) || !extent(b)) return 0;
    const int64_t b_begin = b->place.offset, b_end = b_begin + (int64_t)extent(b);
    const int64_t row_bytes = (int64_t)(b->columns - 1) * b->column_pitch + b->bytes;
    for (uint32_t i = 0; i < a->rows * a->columns; i++) {
        const int64_t begin = run_offset(a, i / a->columns, i % a->columns), end = begin + a->bytes;
        if (begin >= b_end || end <= b_begin) continue;
        for (uint32_t row = 0; row < b->rows; row++) {
            const int64_t first = run_offset(b, row, 0);
            if (first >= end || first + row_bytes <= begin) continue;
            for (uint32_t column = 0; column < b->columns; column++) {
                const int64_t at = run_offset(b, row, column);
                if (at < end && at + b->bytes > begin) return 1;
            }
        }
    }
    return 0;
}

static void check_apart(const struct job *job, const struct host_range *range, const struct host_range *other,
                        const char *what) {
    if (!(range->is_written || other->is_written) || !share(range, other)) return;
    char text[2 * HOST_TEXT];
    describe(job, range, text);
    host_violation("Jobs and transfers that are under way share no byte, unless all only read it.",
                   "%s: %s uses it and nobody has waited for both", text, what);
}

static struct host_range side_of(const struct host_flight *f, int is_destination) {
    const struct rt_transfer *t = &f->transfer;
    return (struct host_range){.is_written = is_destination,
                               .rows = t->rows,
                               .columns = 1,
                               .bytes = t->bytes,
                               .row_pitch = is_destination ? t->to_pitch : t->from_pitch,
                               .place = is_destination ? f->to : f->from};
}

static void check_flight(const struct job *job, const struct host_flight *flight) {
    char text[3 * HOST_TEXT];
    host_describe_flight(flight, text);
    for (int side = 0; side < 2; side++) {
        const struct host_range other = side_of(flight, side);
        for (int i = 0; i < job->ranges; i++) check_apart(job, &job->range[i], &other, text);
    }
}

void host_check_flight_against_jobs(const struct host_flight *fresh) {
    for (int i = 0; i < job_count; i++) check_flight(jobs[i], fresh);
}

static void check_conflicts(struct job *fresh) {
    const struct host_flight *flight;
    for (int i = 0; (flight = host_open_flight(i)); i++) check_flight(fresh, flight);
    for (int i = 0; i + 1 < fresh->ranges; i++) check_apart(fresh, written(fresh), &fresh->range[i], "the job itself");
    for (int i = 0; i < job_count; i++) {
        char text[2 * HOST_TEXT];
        describe(jobs[i], written(jobs[i]), text);
        for (int r = 0; r < fresh->ranges; r++) {
            for (int o = 0; o < jobs[i]->ranges; o++) check_apart(fresh, &fresh->range[r], &jobs[i]->range[o], text);
        }
    }
}

/* Calls `visit` on every run of a range, with its place in the data. */
static void visit_runs(struct job *job, int index,
                       void (*visit)(struct job *, const struct host_range *, int64_t, unsigned char *)) {
    const struct host_range *r = &job->range[index];
    for (uint32_t row = 0; row < r->rows; row++) {
        for (uint32_t column = 0; column < r->columns; column++)
            visit(job, r, run_offset(r, row, column), job->data[index] + run_index(r, row, column));
    }
}

static void take_run(struct job *job, const struct host_range *r, int64_t offset, unsigned char *data) {
    (void)job;
    memcpy(data, r->place.space.memory + offset, r->bytes);
}

static void poison_run(struct job *job, const struct host_range *r, int64_t offset, unsigned char *data) {
    (void)job, (void)data;
    host_poison(&r->place.space, offset, r->bytes);
    host_hide(&r->place.space, offset, r->bytes);
}

static void show_run(struct job *job, const struct host_range *r, int64_t offset, unsigned char *data) {
    (void)job, (void)data;
    host_show(&r->place.space, offset, r->bytes);
}

static void report_run(struct job *job, const struct host_range *r, int64_t offset, unsigned char *data) {
    (void)job, (void)data;
    if (rt_machine.level[r->place.space.level].is_far) return;
    host_report_access((const void *)(r->place.space.begin + (uintptr_t)offset), r->bytes, r->is_written);
}

static _Noreturn void complain(struct job *job, const struct host_range *r, const char *rule, const char *what) {
    char text[2 * HOST_TEXT];
    describe(job, r, text);
    host_violation(rule, "%s: %s before the wait", text, what);
}

static void check_kept(struct job *job, const struct host_range *r, int64_t offset, unsigned char *data) {
    if (!memcmp(r->place.space.memory + offset, data, r->bytes)) return;
    if (r->is_written) complain(job, r, "From start to wait nobody touches what a job writes.", "somebody wrote there");
    complain(job, r, "From start to wait nobody writes what a job reads.", "it was overwritten");
}

/* Reports a job with an operand that was never written. Fewer than 16 bytes could equal garbage by coincidence. */
static void check_written_before(struct job *job, const struct host_range *r) {
    if (range_bytes(r) < 16) return;
    for (uint32_t i = 0; i < r->rows * r->columns; i++) {
        if (host_intact(&r->place.space, run_offset(r, i / r->columns, i % r->columns), r->bytes) != r->bytes) return;
    }
    char text[2 * HOST_TEXT];
    describe(job, r, text);
    host_violation("What a job reads was written in this inference.", "%s: nobody has written it", text);
}

static void land_row(struct job *job) {
    host_show_writes();
    const struct host_range *r = written(job);
    for (uint32_t column = 0; column < r->columns; column++) {
        const int64_t offset = run_offset(r, job->landed, column);
        if (host_intact(&r->place.space, offset, r->bytes) != r->bytes)
            complain(job, r, "From start to wait nobody touches what a job writes.", "somebody wrote there");
        memcpy(r->place.space.memory + offset, job->data[job->ranges - 1] + run_index(r, job->landed, column),
               r->bytes);
        host_note_write(&r->place.space, offset, r->bytes);
    }
    job->landed++;
}

static void land(struct job *job, uint32_t rows) {
    for (; rows && job->landed < written(job)->rows; rows--) land_row(job);
    if (job->landed < written(job)->rows) return;
    for (int i = 0; i + 1 < job->ranges; i++) visit_runs(job, i, check_kept);
}

static void check_names(int accelerator, const char *call) {
    if (accelerator < 0 || accelerator >= rt_machine.accelerators)
        host_violation("Accelerators are numbered as rt_machine lists them.", "%s: there is no accelerator %d", call,
                       accelerator);
    if (strcmp(rt_machine.accelerator[accelerator].name, "neureka"))
        host_violation("The host machine model knows the accelerator neureka.", "%s: accelerator %d is %s", call,
                       accelerator, rt_machine.accelerator[accelerator].name);
    if (host_team_core() > 0)
        host_violation("Core 0 alone starts jobs and waits for them.", "%s is called by another core of the team",
                       call);
}

static uint32_t under_way(int accelerator) {
    uint32_t count = 0;
    for (int i = 0; i < job_count; i++)
        count += jobs[i]->accelerator == accelerator && jobs[i]->landed < written(jobs[i])->rows;
    return count;
}

/* Advances the oldest job that is not complete. */
static void land_oldest(int accelerator, uint32_t rows) {
    for (int i = 0; i < job_count; i++) {
        if (jobs[i]->accelerator != accelerator || jobs[i]->landed == written(jobs[i])->rows) continue;
        land(jobs[i], rows);
        return;
    }
}

static void keep(struct job *job) {
    if (job_count == job_room) {
        job_room = 2 * job_room + 8;
        jobs = realloc(jobs, sizeof *jobs * (size_t)job_room);
        if (!jobs) abort();
    }
    jobs[job_count++] = job;
}

/* Reads the operands, computes the results, and leaves garbage in their place until the job completes. */
static void begin(struct job *job, const uint32_t *registers) {
    const int last = job->ranges - 1;
    for (int i = 0; i < job->ranges; i++) {
        job->data[i] = calloc(range_bytes(&job->range[i]) + 1, 1);
        if (!job->data[i]) abort();
        visit_runs(job, i, take_run);
        visit_runs(job, i, report_run);
        if (i < last) check_written_before(job, &job->range[i]);
    }
    npu_compute(registers, job->data, job->data[last]);
    visit_runs(job, last, poison_run);
}

void rt_job(int accelerator, const uint32_t *registers, int count) {
    host_turn();
    host_lock();
    check_names(accelerator, "rt_job");
    struct job *const job = calloc(1, sizeof *job);
    if (!job) abort();
    job->accelerator = accelerator;
    job->ranges = npu_ranges(registers, count, job->range);
    for (int i = 0; i < job->ranges; i++) find(job, &job->range[i]);
    check_conflicts(job);
    while (under_way(accelerator) >= (uint32_t)rt_machine.accelerator[accelerator].jobs)
        land_oldest(accelerator, UINT32_MAX);
    begin(job, registers);
    keep(job);
    if (host_mode == HOST_EARLY) land(job, UINT32_MAX);
    host_counters.jobs++;
    host_unlock();
}

void rt_job_wait(int accelerator) {
    host_turn();
    host_lock();
    check_names(accelerator, "rt_job_wait");
    int index = 0;
    while (index < job_count && jobs[index]->accelerator != accelerator) index++;
    if (index < job_count) {
        struct job *const job = jobs[index];
        land(job, UINT32_MAX);
        for (int i = 0; i < job->ranges; i++) {
            visit_runs(job, i, check_kept);
            if (job->range[i].is_written) visit_runs(job, i, show_run);
            visit_runs(job, i, report_run);
            free(job->data[i]);
        }
        free(job);
        memmove(jobs + index, jobs + index + 1, sizeof *jobs * (size_t)(job_count - index - 1));
        job_count--;
    }
    host_unlock();
}

void host_progress_jobs(void) {
    for (int a = 0; a < rt_machine.accelerators; a++) {
        if (under_way(a) && !host_below(3)) land_oldest(a, 1 + host_below(8));
    }
}

void host_check_job_lifetimes(void) {
    for (int i = 0; i < job_count; i++) {
        for (int r = 0; r < jobs[i]->ranges; r++) {
            if (host_is_alive(&jobs[i]->range[r].place)) continue;
            char text[2 * HOST_TEXT];
            describe(jobs[i], &jobs[i]->range[r], text);
            host_violation("Blocks live until the jobs that use them were waited for.", "%s died while under way is %s",
                           jobs[i]->range[r].place.block->name, text);
        }
    }
}

void host_check_all_jobs_waited(const char *when) {
    if (!job_count) return;
    char text[2 * HOST_TEXT];
    describe(jobs[0], written(jobs[0]), text);
    host_violation("Every job is waited for before the inference ends.", "%s while nobody had waited for %s", when,
                   text);
}
