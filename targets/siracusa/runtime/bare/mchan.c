/* The cluster DMA: commands of 17-bit length, one- or two-dimensional, counted by one of 16 counters.
 *
 * A command belongs to the counter that its core took last. A ticket holds every counter that its commands went to; it
 * goes on with the last one while no other ticket has begun anything. */
#include "cluster.h"

#include "siracusa.h"

/* The first word of a command; next come the address in L1, the address outside, and bytes and pitch of a row. */
enum {
    LENGTH_MASK = 0x1FFFF,
    COMMAND_TO_L1 = 1 << 17,
    COMMAND_INCREMENT = 1 << 18,
    COMMAND_ROWS = 1 << 19, /* rows outside; they lie one after the other in L1 */
    COMMAND_EVENT = 1 << 20,
};

enum { COUNTERS = 16, TICKETS = 8, EVERY_COUNTER = (1 << COUNTERS) - 1, NO_TICKET = -1, LONGEST_PITCH = 65535 };

#define COMMAND MCHAN         /* written: words of a command; read: takes a counter */
#define STATUS (MCHAN + 0x04) /* low half: counters that are not at zero, high half: taken; written: gives back */

static IN_L1 uint32_t counters[TICKETS];
static IN_L1 int last_ticket; /* plus one: zero before the first */

/* Gives back the counters whose transfers are complete. Sleeps until there is one. */
static void reclaim(void) {
    uint32_t complete;
    while (!(complete = ~load(STATUS) & EVERY_COUNTER)) cluster_sleep(EVENT_MCHAN);
    store(STATUS, complete);
    for (int i = 0; i < TICKETS; i++) counters[i] &= ~complete;
}

static void take_counter(int ticket) {
    if (last_ticket == ticket + 1 && counters[ticket]) return;
    if (load(STATUS) >> COUNTERS == EVERY_COUNTER) reclaim();
    counters[ticket] |= 1u << load(COMMAND);
    last_ticket = ticket + 1;
}

struct side {
    uint32_t near, far, flags;
};

static void rows(struct side at, uint32_t bytes, uint32_t count, uint32_t pitch) {
    store(COMMAND, bytes * count | at.flags | COMMAND_ROWS);
    store(COMMAND, at.near);
    store(COMMAND, at.far);
    store(COMMAND, bytes);
    store(COMMAND, pitch);
}

static void run(struct side at, uint32_t bytes) {
    while (bytes) {
        const uint32_t n = bytes <= LENGTH_MASK ? bytes : 65536;
        store(COMMAND, n | at.flags);
        store(COMMAND, at.near);
        store(COMMAND, at.far);
        at.near += n;
        at.far += n;
        bytes -= n;
    }
}

void mchan_start(int ticket, const struct rt_transfer *t) {
    const int is_load = t->to - L1_BASE < L1_BYTES;
    const uint32_t near_pitch = is_load ? t->to_pitch : t->from_pitch, pitch = is_load ? t->from_pitch : t->to_pitch;
    struct side at = {is_load ? t->to : t->from, is_load ? t->from : t->to, COMMAND_INCREMENT | COMMAND_EVENT};
    if (is_load) at.flags |= COMMAND_TO_L1;
    uint32_t left = t->bytes ? t->rows : 0;
    if (!left) return;
    order_memory();
    take_counter(ticket);
    const int is_packed = left == 1 || near_pitch == t->bytes;
    if (is_packed && (left == 1 || pitch == t->bytes)) {
        run(at, t->bytes * left);
    } else if (is_packed && t->bytes <= LENGTH_MASK && pitch <= LONGEST_PITCH) {
        const uint32_t most = LENGTH_MASK / t->bytes;
        while (left) {
            const uint32_t n = left < most ? left : most;
            rows(at, t->bytes, n, pitch);
            at.near += n * t->bytes;
            at.far += n * pitch;
            left -= n;
        }
    } else {
        for (; left; left--, at.near += near_pitch, at.far += pitch) run(at, t->bytes);
    }
}

void mchan_wait(int ticket) {
    const uint32_t mine = counters[ticket];
    if (!mine) return;
    while (load(STATUS) & mine) cluster_sleep(EVENT_MCHAN);
    store(STATUS, mine);
    counters[ticket] = 0;
    order_memory();
}
