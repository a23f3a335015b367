/* The cluster: eight cores that compute, and a ninth that moves data for core 0.
 *
 * Core 0 runs the network. The others wait for a word that it writes for every fork: how many cores take part, and a
 * number that is new. The ninth looks for commands of core 0 in a ring, gives them to the DMA engine and writes back
 * how many are complete. */
#include "cluster.h"

#include "bare.h"
#include "board.h"
#include "console.h"

_Noreturn void cluster_worker(void);
_Noreturn void cluster_mover(void);

enum { RING = 16, TICKETS = 8, CORES_BITS = 8 };
enum { LONG = 256, PIECE = 64 }; /* bytes of a row from which on it is moved in pieces, and of those */

/* ---- the team */

static IN_L1 struct {
    void (*body)(void *);
    void *argument;
    volatile uint32_t word; /* cores of the newest fork, above them its number */
    volatile uint32_t arrived, generation;
} team;

void cluster_worker(void) {
    const uint32_t core = (uint32_t)rt_core();
    for (uint32_t seen = 0;;) {
        const uint32_t word = team.word;
        if (word == seen) continue;
        seen = word;
        if (core >= (word & ((1u << CORES_BITS) - 1))) continue;
        order_memory();
        team.body(team.argument);
        rt_barrier();
    }
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    const uint32_t number = (team.word >> CORES_BITS) + 1;
    team.body = body;
    team.argument = argument;
    order_memory();
    team.word = number << CORES_BITS | (uint32_t)cores;
    body(argument);
    rt_barrier();
}

static void meet(void) {
    const uint32_t cores = team.word & ((1u << CORES_BITS) - 1);
    const uint32_t generation = team.generation;
    order_memory();
    if (cores > 1) {
        uint32_t before;
        __asm__ volatile("amoadd.w %0, %2, %1" : "=r"(before), "+A"(team.arrived) : "r"(1) : "memory");
        if (before + 1 == cores) {
            team.arrived = 0;
            order_memory();
            team.generation = generation + 1;
        } else {
            while (team.generation == generation) continue;
        }
    }
    order_memory();
}

void rt_barrier(void) {
    meet();
#ifdef RT_CHECKED
    if (rt_core() == 0) snapshot_settle();
    meet();
#endif
}

int rt_enter(int (*entry)(void *), void *argument) {
    return entry(argument);
}

/* ---- transfers */

static IN_L1 struct {
    struct rt_transfer command[RING];
    volatile uint32_t asked, complete; /* written by core 0; by the core that moves data */
    uint32_t newest[TICKETS];          /* the command after the last one of the ticket */
} ring;

/* Xdma: what the DMA engine is told by instructions. */
#define DMA(number, first, second) \
    __asm__ volatile(".insn r 0x2B, 0, %0, zero, %1, %2" ::"i"(number), "r"(first), "r"(second) : "memory")

enum { SOURCE = 0, DESTINATION = 1, COPY = 3, STATUS = 5, STRIDES = 6, REPEAT = 7 };
enum { HAS_ROWS = 1 << 1, FIRST_NUMBER = 1 };

static void begin(rt_address to, rt_address from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                  uint32_t from_pitch) {
    uint32_t number;
    DMA(SOURCE, from, 0);
    DMA(DESTINATION, to, 0);
    DMA(STRIDES, from_pitch, to_pitch);
    DMA(REPEAT, rows, 0);
    __asm__ volatile(".insn r 0x2B, 0, %1, %0, %2, %3"
                     : "=r"(number)
                     : "i"(COPY), "r"(bytes), "r"(HAS_ROWS)
                     : "memory");
    (void)number;
}

/* Begins a transfer from a row on: all of its rows, or one that is long; returns the first row that is left. Memory is
 * asked for all of a row at once, and instructions that are fetched wait behind that: long rows are moved in pieces. */
static uint32_t begin_some(const struct rt_transfer *t, uint32_t row, uint32_t *begun) {
    if (t->bytes <= LONG) {
        begin(t->to, t->from, t->bytes, t->rows, t->to_pitch, t->from_pitch);
        *begun += 1;
        return t->rows;
    }
    const rt_address to = t->to + row * t->to_pitch, from = t->from + row * t->from_pitch;
    const uint32_t pieces = t->bytes / PIECE, done = pieces * PIECE;
    begin(to, from, PIECE, pieces, PIECE, PIECE);
    *begun += 1;
    if (done < t->bytes) {
        begin(to + done, from + done, t->bytes - done, 1, 0, 0);
        *begun += 1;
    }
    return row + 1;
}

/* How many transfers are complete. */
static uint32_t completed(void) {
    uint32_t number;
    __asm__ volatile(".insn r 0x2B, 0, %1, %0, zero, zero" : "=r"(number) : "i"(STATUS) : "memory");
    return number - FIRST_NUMBER;
}

static int is_in_l1(rt_address place) {
    return place - L1_BASE < L1_BYTES;
}

/* Transfers into L1 and out of it are not under way together: the simulator's engine would take what arrives for a part
 * of the oldest one, and write it where that ends. */
void cluster_mover(void) {
    uint32_t last[RING]; /* how many the engine has completed when a command is complete */
    int is_out = 0;
    for (uint32_t asked = 0, row = 0, begun = 0, complete = 0;;) {
        const struct rt_transfer *const next = &ring.command[asked % RING];
        if (asked != ring.asked && (is_in_l1(next->from) == is_out || completed() == begun)) {
            is_out = is_in_l1(next->from);
            row = begin_some(next, row, &begun);
            if (row >= next->rows) last[asked++ % RING] = begun, row = 0;
        }
        if (complete != asked && (int32_t)(completed() - last[complete % RING]) >= 0) ring.complete = ++complete;
    }
}

void rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    (void)engine;
    while (ring.asked - ring.complete >= RING) continue;
    ring.command[ring.asked % RING] = *transfer;
    order_memory();
    ring.asked++;
    ring.newest[ticket] = ring.asked;
}

void rt_wait(int engine, int ticket) {
    (void)engine;
    while ((int32_t)(ring.complete - ring.newest[ticket]) < 0) continue;
    order_memory();
}

uint32_t rt_cycles(void) {
    return bare_cycles();
}

void rt_job(int accelerator, const uint32_t *registers, int count) {
    (void)accelerator, (void)registers, (void)count;
    bare_fail("the cluster has no accelerator");
}

void rt_job_wait(int accelerator) {
    (void)accelerator;
}
