/* The host model of the machine: an implementation of deeploy_rt.h on a POSIX host that tries to expose every mistake.
 *
 * It checks every call against the rules of docs/hazards.md and guarantees no more than the interface does: transfers
 * arrive as early or as late as they may, unwritten and freed memory is overwritten with garbage, and a seed chooses
 * the order in which cores run. A broken rule is reported in two lines and ends the program with the status
 * HOST_VIOLATION.
 *
 * Sources: levels.c (addresses), poison.c (garbage patterns), steps.c (lifetimes), transfers.c (engines), flight.c
 * (outstanding transfers), npu_jobs.c and npu.c (accelerators), team.c with fibres.c or, with RT_THREADS, threads.c
 * (cores), writes.c (which core wrote what), report.c (messages, counters, snapshots), main.c (runs networks on files).
 *
 * A snapshot file holds unsigned 32-bit numbers of the host's byte order: the number of levels, per level the bytes
 * that are shown of it (the highest end of a block), the bytes of all outputs. Then one record per step of the first
 * inference, as memory is at the end of the step: the number of the step, the bytes of every level's arena, the
 * outputs.
 */
#ifndef DEEPLOY_HOST_MODEL_H
#define DEEPLOY_HOST_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "deeploy_rt.h"

#ifndef RT_CHECKED
#error "the host machine model and the networks that run on it are compiled with -DRT_CHECKED"
#endif

enum { HOST_VIOLATION = 70, HOST_NO_STEP = INT32_MIN, HOST_TEXT = 200 };

enum host_mode { HOST_EARLY, HOST_LATE, HOST_RANDOM };

enum host_kind { HOST_ARENA, HOST_CONSTANTS, HOST_REGION };

/* Contiguous addresses of a level. The model accesses the same bytes through a second mapping at `memory`, which works
 * even while generated code may not touch them. Unused margins surround an arena. */
struct host_space {
    int level;
    enum host_kind kind;
    rt_address begin;
    uint32_t bytes;
    uint32_t before, after; /* bytes of the margins */
    unsigned char *memory;
    int is_writable;
    uint32_t salt; /* makes the garbage of every space different */
};

struct host_place {
    struct host_space space;
    uint32_t offset;
    const struct rt_block *block; /* the block it belongs to, set by host_check_block */
};

struct host_counters {
    struct host_traffic {
        uint64_t transfers, rows, bytes_to_near, bytes_to_far, waits;
        uint32_t outstanding; /* the largest number of transfers under way at any time */
    } *engine;
    uint32_t *planned, *touched; /* per level: the highest end of a live block, or of a byte that changed or moved */
    uint64_t forks, barriers, jobs;
    struct {
        uint64_t sends, receives, sent, received; /* messages and bytes to and from other chips */
    } link;
    uint64_t *step_bytes; /* moved by transfers that began in the step; [0] is what comes before step 0 */
    int steps;
};

extern struct host_counters host_counters;
extern enum host_mode host_mode;
extern int host_chip; /* the number of the chip that is modelled, -1 where there is only one */

/* report.c */
_Noreturn void host_violation(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
void host_tell(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
void host_reset_counters(void);
void host_count_step_bytes(uint64_t bytes);
int host_write_counters(const char *path);
void host_snapshot_header(FILE *file, const uint32_t *level_bytes, uint32_t output_bytes);

/* levels.c */
void host_open(uint64_t seed);
struct host_space *host_arena(int level);
int host_find(rt_address address, struct host_place *place);
const char *host_level_name(int level);
/* Generated code may not, or may again, touch a part of an arena; only builds with the address sanitizer notice. */
void host_hide(const struct host_space *space, int64_t offset, uint64_t bytes);
void host_show(const struct host_space *space, int64_t offset, uint64_t bytes);
void host_keep_regions(void);
void host_forget_regions(void);

/* poison.c: writes garbage and finds it again. Offsets may reach into the margins of a space. */
void host_seed(uint64_t seed);
uint64_t host_random(void);
uint32_t host_below(uint32_t bound);
void host_new_poison(void);
void host_poison(const struct host_space *space, int64_t offset, uint64_t bytes);
uint64_t host_intact(const struct host_space *space, int64_t offset, uint64_t bytes);

/* steps.c */
int host_step(void);
void host_check_block(struct host_place *place, uint64_t bytes, const char *what);
int host_is_alive(const struct host_place *place);
void host_describe(const struct host_place *place, char text[HOST_TEXT]);
void host_end_initialisation(void);
void host_begin_inference(void);
void host_end_inference(void);
void host_take_snapshots(FILE *file, void *const *outputs, const size_t *output_bytes, int count);

/* flight.c: a transfer from its start to the wait for its ticket. It arrives in pieces. */
struct host_flight {
    struct rt_transfer transfer;
    int engine, ticket;
    struct host_place to, from;
    unsigned char *data;   /* the source as it was at the start, rows one after the other */
    unsigned char *landed; /* per piece */
    uint32_t pieces, left;
};

struct host_flight *host_take_off(int engine, int ticket, const struct rt_transfer *transfer,
                                  const struct host_place *to, const struct host_place *from);
void host_land(struct host_flight *flight, uint32_t pieces);
void host_close(struct host_flight *flight);
void host_describe_flight(const struct host_flight *flight, char text[3 * HOST_TEXT]);
void host_check_conflict(const struct host_flight *old, const struct host_flight *fresh);
int host_is_under_way(const struct host_flight *flight, rt_address begin, uint32_t bytes, int is_written);

/* transfers.c */
const struct host_flight *host_open_flight(int index); /* NULL after the last one */
void host_progress(void);
void host_check_lifetimes(void);
void host_check_all_waited(const char *when);

/* npu_jobs.c */
void host_check_flight_against_jobs(const struct host_flight *fresh);
void host_progress_jobs(void);
void host_check_job_lifetimes(void);
void host_check_all_jobs_waited(const char *when);

/* steps.c: all cores of a team have come to a barrier */
void host_settle_step(void);

void host_visit_alive(void (*visit)(const struct rt_block *)); /* by level, then by offset */

/* writes.c: which core of a team wrote what since the last barrier */
void host_begin_writes(void);
void host_enter_core(int core);
void host_note_write(const struct host_space *space, int64_t offset, uint64_t bytes);
void host_show_writes(void);
void host_leave_core(void);
void host_end_writes(void);

/* team.c */
_Noreturn void host_uneven_barriers(int waiting, int cores);

/* fibres.c, threads.c */
void host_run_team(int cores, void (*body)(void *), void *argument);
void host_turn(void);
int host_team_core(void); /* -1 outside of a team */
void host_report_access(const void *address, uint32_t bytes, int is_write);
void host_lock(void);
void host_unlock(void);

#endif
