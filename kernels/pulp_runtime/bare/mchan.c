/* The cluster DMA: commands of 17-bit length, one- or two-dimensional, counted by one of 16 counters.
 *
 * A command belongs to the counter that its core took last. A ticket holds every counter that its commands went to; it
 * goes on with the last one while no other ticket has begun anything. */
#include "cluster.h"

#include "deeploy_box.h"
#include "pulp.h"

/* The first word of a command; next come the address in L1, the address outside, and bytes and pitch of a row. */
enum {
    LENGTH_MASK = 0x1FFFF,
    COMMAND_TO_L1 = 1 << 17,
    COMMAND_INCREMENT = 1 << 18,
    COMMAND_ROWS = 1 << 19, /* rows outside; they lie one after the other in L1 */
    COMMAND_EVENT = 1 << 20,
};

enum { COUNTERS = 16, TICKETS = 8, EVERY_COUNTER = (1 << COUNTERS) - 1, LONGEST_PITCH = 65535, PIECE = 65536 };

#define COMMAND MCHAN         /* written: words of a command; read: takes a counter */
#define STATUS (MCHAN + 0x04) /* low half: counters that are not at zero, high half: taken; written: gives back */

/* Together, so that one address leads to all of them. */
static IN_L1 struct {
    uint32_t counters[TICKETS];
    int last_ticket; /* plus one: zero before the first */
    uint8_t is_mchan[MOST_ENGINES];
} at;

/* Gives back the counters whose transfers are complete. Sleeps until there is one. */
static void reclaim(void) {
    uint32_t complete;
    while (!(complete = ~load(STATUS) & EVERY_COUNTER)) cluster_sleep(EVENT_MCHAN);
    store(STATUS, complete);
    for (int i = 0; i < TICKETS; i++) at.counters[i] &= ~complete;
}

/* Sends what fits into one command, and tells whether it did, or whether several rows do. */
static inline int send_one(const struct rt_transfer *t, int *has_rows) {
    const uint32_t bytes = t->bytes, total = bytes * t->rows;
    uint32_t near = t->to, far = t->from, near_pitch = t->to_pitch, pitch = t->from_pitch;
    uint32_t command = total | COMMAND_INCREMENT | COMMAND_EVENT | COMMAND_TO_L1;
    if (near - L1_BASE >= L1_BYTES) {
        near = t->from, far = t->to, near_pitch = t->from_pitch, pitch = t->to_pitch;
        command ^= COMMAND_TO_L1;
    }
    const int is_run = bytes == total || (near_pitch == bytes && pitch == bytes);
    const int is_direct = is_run || (near_pitch == bytes && pitch <= LONGEST_PITCH);
    *has_rows = is_direct;
    if (total - 1 >= LENGTH_MASK || !is_direct) return !total;
    store(COMMAND, is_run ? command : command | COMMAND_ROWS);
    store(COMMAND, near);
    store(COMMAND, far);
    if (is_run) return 1;
    store(COMMAND, bytes);
    store(COMMAND, pitch);
    return 1;
}

/* What does not fit into one command: as many rows as the length allows, else single rows, else pieces of a row. */
static __attribute__((noinline, cold)) void send_pieces(const struct rt_transfer *whole, int has_rows) {
    struct rt_transfer t = *whole;
    const uint32_t most = has_rows && t.bytes <= LENGTH_MASK ? LENGTH_MASK / t.bytes : 1;
    for (uint32_t left = whole->rows; left; left -= t.rows) {
        t.rows = left < most ? left : most;
        const struct rt_transfer rest = t;
        for (uint32_t done = 0; done < rest.bytes; done += t.bytes) {
            t.bytes = rest.bytes - done <= LENGTH_MASK ? rest.bytes - done : PIECE;
            t.to = rest.to + done;
            t.from = rest.from + done;
            (void)send_one(&t, &has_rows);
        }
        t = rest;
        t.to += t.rows * t.to_pitch;
        t.from += t.rows * t.from_pitch;
    }
}

static __attribute__((noinline)) void send(const struct rt_transfer *t) {
    int has_rows;
    if (!send_one(t, &has_rows)) send_pieces(t, has_rows);
}

static inline void take_counter(int ticket) {
    at.counters[ticket] |= 1u << load(COMMAND);
    at.last_ticket = ticket + 1;
}

static __attribute__((noinline)) void send_later(int ticket, const struct rt_transfer *t) {
    reclaim();
    take_counter(ticket);
    send(t);
}

/* Whether a transfer under this ticket goes on with a counter that is the ticket's own. */
static inline int has_counter(int ticket) {
    return at.last_ticket == ticket + 1 && at.counters[ticket];
}

static void send_counted(int ticket, const struct rt_transfer *t) {
    if (load(STATUS) >> COUNTERS == EVERY_COUNTER) {
        send_later(ticket, t);
        return;
    }
    take_counter(ticket);
    send(t);
}

void mchan_serve(int engine) {
    at.is_mchan[engine] = 1;
}

void rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    order_memory();
    if (!at.is_mchan[engine])
        hyperram_start(ticket, transfer, transfer->to >= L1_BASE);
    else if (has_counter(ticket))
        send(transfer);
    else
        send_counted(ticket, transfer);
}

void rt_wait(int engine, int ticket) {
    if (!at.is_mchan[engine]) {
        hyperram_wait(ticket);
        return;
    }
    const uint32_t mine = at.counters[ticket];
    if (!mine) return;
    while (load(STATUS) & mine) cluster_sleep(EVENT_MCHAN);
    store(STATUS, mine);
    at.counters[ticket] = 0;
    order_memory();
}

/* Starts the transfer of rows in few instructions, and tells whether it did: nearly all code of a small layer is
 * fetched for the first time, and that takes longer than to execute it. */
static inline int start_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                             uint32_t pitch, uint32_t command) {
    const uint32_t total = bytes * rows;
    const int has_gaps = rows > 1 && pitch != bytes;
    order_memory();
    if (!at.is_mchan[engine] || total - 1 >= LENGTH_MASK || (has_gaps && pitch > LONGEST_PITCH)) return 0;
    if (!has_counter(ticket)) {
        if (load(STATUS) >> COUNTERS == EVERY_COUNTER) return 0; /* none is free */
        take_counter(ticket);
    }
    command |= total | COMMAND_INCREMENT | COMMAND_EVENT;
    store(COMMAND, has_gaps ? command | COMMAND_ROWS : command);
    store(COMMAND, near);
    store(COMMAND, far);
    if (has_gaps) {
        store(COMMAND, bytes);
        store(COMMAND, pitch);
    }
    return 1;
}

void rt_fetch_run(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes) {
    if (!start_rows(engine, ticket, near, far, bytes, 1, bytes, COMMAND_TO_L1))
        rt_move_rows(engine, ticket, 0, near, far, bytes, 1, bytes);
}

void rt_store_run(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes) {
    if (!start_rows(engine, ticket, near, far, bytes, 1, bytes, 0))
        rt_move_rows(engine, ticket, 1, near, far, bytes, 1, bytes);
}

void rt_fetch_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                   uint32_t pitch) {
    if (!start_rows(engine, ticket, near, far, bytes, rows, pitch, COMMAND_TO_L1))
        rt_move_rows(engine, ticket, 0, near, far, bytes, rows, pitch);
}

void rt_store_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                   uint32_t pitch) {
    if (!start_rows(engine, ticket, near, far, bytes, rows, pitch, 0))
        rt_move_rows(engine, ticket, 1, near, far, bytes, rows, pitch);
}
