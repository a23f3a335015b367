/* HyperRAM behind the controller's uDMA. Core 0 writes commands into a ring in L1 and rings; the controller feeds the
 * uDMA's queue, which works in order, and writes back how many commands are complete. */
#include "cluster.h"
#include "pulp.h"

#define HYPER_COMMON (HYPER + 0x100) /* of all transactions */

/* Offsets from HYPER. L2_ADDRESS, BYTES and CONFIGURE are those of a channel, from its own offset. */
enum {
    READ_CHANNEL = 0x00,
    WRITE_CHANNEL = 0x0C,
    L2_ADDRESS = 0x00,
    BYTES = 0x04,
    CONFIGURE = 0x08, /* written: starts a transaction */
    BUS_COMMAND = 0x18,
    RAM_ADDRESS = 0x1C,
    TRANSACTIONS = 0x24, /* bit 0: busy; above: how many are not complete */
    RAM_ROWS = 0x28,     /* 1: rows apart in the RAM; +4: bytes of a row, +8: pitch */
    L2_ROWS = 0x34       /* the same, apart in L2 */
};

enum { START = 1 << 4, BUS_LINEAR = 1 << 0, BUS_READ = 1 << 2 };

/* Latency of the RAM in cycles, doubled by its refresh; pages of 1 KiB; chip select of the RAM. */
enum { PAGE_BOUND = 3, LATENCY = 6, HAS_REFRESH = 1, CHIP_SELECT = 0 };

enum { RING = 16, QUEUE = 8, TICKETS = 8, LONGEST = 32768 };

/* Flags in the upper bits of a command's RAM address. */
enum { READ = 1 << 28, ROWS_IN_RAM = 1 << 29, ROWS_IN_L2 = 1 << 30 };
#define TAIL (1u << 31) /* 1 to 3 bytes that must not be written as a word */
#define ADDRESS_MASK (HYPERRAM_BYTES - 1)

struct command {
    uint32_t ram, l2, bytes;
    uint32_t row, pitch; /* with rows */
};

static IN_L1 struct {
    struct command command[RING];
    volatile uint32_t asked, complete; /* written by core 0; by the controller */
} ring;

static IN_L1 uint32_t newest[TICKETS]; /* the command after the last one of the ticket */

/* The controller's. */
static uint32_t issued, retired;
static uint32_t tails[RING];
static uint32_t mode = ~0u; /* flags that the uDMA is set up for */

/* The next free place of the ring. */
static struct command *next_command(void) {
    while (ring.asked - ring.complete >= RING) cluster_sleep(EVENT_SOFTWARE);
    return &ring.command[ring.asked % RING];
}

static void ask(uint32_t ram, uint32_t l2, uint32_t bytes) {
    struct command *const c = next_command();
    c->ram = ram;
    c->l2 = l2;
    c->bytes = bytes;
    order_memory();
    ring.asked++;
}

static void ask_rows(uint32_t ram, uint32_t l2, uint32_t row, uint32_t rows, uint32_t pitch) {
    struct command *const c = next_command();
    c->row = row;
    c->pitch = pitch;
    ask(ram, l2, row * rows);
}

static void ring_up(int ticket) {
    newest[ticket] = ring.asked;
    store(INTERRUPT_SET, INTERRUPT_CLUSTER);
}

/* The uDMA writes whole words to L2, beyond the end when the length is odd: the last bytes go elsewhere and are copied.
 */
static void ask_run(uint32_t ram, uint32_t l2, uint32_t bytes, uint32_t flags) {
    const uint32_t tail = flags & READ ? bytes % 4 : 0;
    bytes -= tail;
    while (bytes) {
        const uint32_t n = bytes < LONGEST ? bytes : LONGEST;
        ask(ram | flags, l2, n);
        ram += n;
        l2 += n;
        bytes -= n;
    }
    if (tail) ask(ram | flags | TAIL, l2, tail);
}

static __attribute__((noinline)) void start_many(int ticket, const struct rt_transfer *t, uint32_t flags) {
    const uint32_t bytes = t->bytes;
    uint32_t ram = flags & READ ? t->from : t->to, l2 = flags & READ ? t->to : t->from;
    const uint32_t ram_pitch = flags & READ ? t->from_pitch : t->to_pitch;
    const uint32_t l2_pitch = flags & READ ? t->to_pitch : t->from_pitch;
    uint32_t left = bytes ? t->rows : 0;
    if (left && ram_pitch == bytes && l2_pitch == bytes) {
        ask_run(ram, l2, bytes * left, flags);
        left = 0;
    }
    const int is_regular = bytes <= LONGEST && (l2_pitch == bytes || (ram_pitch == bytes && bytes % 4 == 0));
    /* A row that ends within a word is mended by those that follow it, so the last ones go alone. */
    const uint32_t alone = bytes % 4 == 0 ? 0 : bytes == 1 ? 3 : 1;
    while (is_regular && left > alone + 1) {
        const uint32_t most = LONGEST / bytes, n = left - alone < most ? left - alone : most;
        if (l2_pitch == bytes)
            ask_rows(ram | flags | ROWS_IN_RAM, l2, bytes, n, ram_pitch);
        else
            ask_rows(ram | flags | ROWS_IN_L2, l2, bytes, n, l2_pitch);
        ram += n * ram_pitch;
        l2 += n * l2_pitch;
        left -= n;
    }
    for (; left; left--, ram += ram_pitch, l2 += l2_pitch) ask_run(ram, l2, bytes, flags);
    ring_up(ticket);
}

void hyperram_start(int ticket, const struct rt_transfer *t, int is_read) {
    order_memory();
    const uint32_t bytes = t->bytes;
    if (t->rows != 1 || bytes - 1 >= LONGEST || (is_read && bytes % 4)) {
        start_many(ticket, t, is_read ? READ : 0);
        return;
    }
    if (is_read)
        ask(t->from | READ, t->to, bytes);
    else
        ask(t->to, t->from, bytes);
    ring_up(ticket);
}

void hyperram_wait(int ticket) {
    while ((int32_t)(ring.complete - newest[ticket]) < 0) cluster_sleep(EVENT_SOFTWARE);
    order_memory();
}

void hyperram_power_up(void) {
    store(UDMA, load(UDMA) | 1 << HYPER_PERIPHERAL);
    store(HYPER_COMMON + 0x00, PAGE_BOUND);
    store(HYPER_COMMON + 0x04, LATENCY);
    store(HYPER_COMMON + 0x08, HAS_REFRESH);
    store(HYPER_COMMON + 0x20, CHIP_SELECT);
    /* Four events of every peripheral: data and transaction done, each way. */
    store(SOC_EVENTS + 0x04 + 4 * (HYPER_PERIPHERAL / 8), ~(0xFu << 4 * (HYPER_PERIPHERAL % 8)));
    store(INTERRUPT_MASK, INTERRUPT_CLUSTER | INTERRUPT_PERIPHERAL);
}

static void issue(const struct command *c, uint32_t l2) {
    const uint32_t ram = c->ram, bytes = c->bytes, flags = ram & (READ | ROWS_IN_RAM | ROWS_IN_L2);
    if (flags != mode) {
        mode = flags;
        store(HYPER + RAM_ROWS, (flags & ROWS_IN_RAM) != 0);
        store(HYPER + L2_ROWS, (flags & ROWS_IN_L2) != 0);
        store(HYPER + BUS_COMMAND, flags & READ ? BUS_LINEAR | BUS_READ : BUS_LINEAR);
    }
    if (flags & (ROWS_IN_RAM | ROWS_IN_L2)) {
        const uint32_t side = HYPER + (flags & ROWS_IN_RAM ? RAM_ROWS : L2_ROWS);
        store(side + 4, c->row);
        store(side + 8, c->pitch);
    }
    const uint32_t channel = HYPER + (flags & READ ? READ_CHANNEL : WRITE_CHANNEL);
    store(HYPER + RAM_ADDRESS, ram & ADDRESS_MASK);
    store(channel + L2_ADDRESS, l2);
    store(channel + BYTES, bytes);
    store(channel + CONFIGURE, START);
}

static uint32_t outstanding(void) {
    return load(HYPER + TRANSACTIONS) >> 1 & 0xFF;
}

/* What completed since the last call is complete for core 0 too, and its tails are in place. */
static void retire(uint32_t complete) {
    for (; retired != complete; retired++) {
        const struct command *const c = &ring.command[retired % RING];
        if (!(c->ram & TAIL)) continue;
        for (uint32_t byte = 0; byte < c->bytes; byte++) {
            ((volatile uint8_t *)c->l2)[byte] = (uint8_t)(tails[retired % RING] >> 8 * byte);
        }
    }
    order_memory();
    ring.complete = complete;
    store(CLUSTER_EVENTS + 0x600, 1);
}

/* What is asked for or completes after this has looked raises an interrupt, and so another call. */
void hyperram_serve(void) {
    const uint32_t complete = issued - outstanding();
    if (complete != retired) retire(complete);
    const uint32_t asked = ring.asked;
    order_memory();
    for (; issued != asked && issued - complete < QUEUE; issued++) {
        const struct command *const c = &ring.command[issued % RING];
        issue(c, c->ram & TAIL ? (uint32_t)&tails[issued % RING] : c->l2);
    }
}

void hyperram_write(uint32_t to, const void *from, uint32_t bytes) {
    for (uint32_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < LONGEST ? bytes - done : LONGEST;
        const struct command c = {to + done, (uint32_t)from + done, n, 0, 0};
        issue(&c, c.l2);
        while (outstanding()) continue;
    }
}
