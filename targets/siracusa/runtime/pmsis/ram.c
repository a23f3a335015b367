/* HyperRAM. Core 0 writes commands into a ring and sends each to the controller as a task; the controller gives them to
 * the SDK's driver one after the other: the driver sets up a transaction when it is asked for, in one of two register
 * sets, and may overwrite one that still waits when more are open. */
#include "bsp/ram.h"
#include "bsp/ram/hyperram.h"
#include "pmsis.h"
#include "sdk.h"

enum { RING = 16, LONGEST = 32768 };

struct command {
    uint32_t ram;
    uint8_t *l2;
    uint32_t bytes, row, pitch; /* row: bytes of a row, or 0 when the bytes follow each other in the RAM too */
    int is_read;
    int is_tail; /* a read of 1 to 3 bytes, which must not be written to L2 as a word */
    uint8_t done;
    pi_task_t task;
};

static struct pi_device device;
static PI_L2 struct command ring[RING];
static PI_L2 uint32_t newest[TICKETS]; /* the command after the last one of the ticket */
static PI_L2 uint32_t asked;           /* commands that core 0 wrote */
static PI_L2 volatile uint32_t complete;

/* The controller's. */
static uint32_t received;
static int is_busy;
static PI_L2 uint32_t tail[2];
static pi_task_t copied;

uint32_t ram_open(uint32_t bytes) {
    static struct pi_hyperram_conf conf;
    uint32_t begin;
    pi_hyperram_conf_init(&conf);
    conf.reserve_addr_0 = 0;
    pi_open_from_conf(&device, &conf);
    if (pi_ram_open(&device)) sdk_fail("HyperRAM cannot be opened");
    if (pi_ram_alloc(&device, &begin, bytes)) sdk_fail("constants and arena are larger than HyperRAM");
    return begin;
}

void ram_store(uint32_t to, void *from, uint32_t bytes) {
    pi_ram_write(&device, to, from, bytes);
}

static void start_next(void);

static void finish(void *argument) {
    struct command *const c = argument;
    const uint8_t *const bytes = (const uint8_t *)tail;
    for (uint32_t i = 0; c->is_tail && i < c->bytes; i++) c->l2[i] = bytes[i];
    order_memory();
    complete++;
    cl_notify_task_done(&c->done, 0);
    start_next();
}

static void start_next(void) {
    is_busy = complete != received;
    if (!is_busy) return;
    struct command *const c = &ring[complete % RING];
    void *const l2 = c->is_tail ? (void *)tail : c->l2;
    pi_task_callback(&copied, finish, c);
    if (c->row)
        pi_ram_copy_2d_async(&device, c->ram, l2, c->bytes, c->pitch, c->row, c->is_read, &copied);
    else
        pi_ram_copy_async(&device, c->ram, l2, c->bytes, c->is_read, &copied);
}

static void receive(void *argument) {
    (void)argument;
    received++;
    if (!is_busy) start_next();
}

/* Core 0. Sleeps while the ring is full. */
static void ask(const struct command *model, uint32_t bytes) {
    struct command *const c = &ring[asked % RING];
    if (asked - complete >= RING) cl_wait_task(&c->done);
    c->ram = model->ram;
    c->l2 = model->l2;
    c->bytes = bytes;
    c->row = model->row;
    c->pitch = model->pitch;
    c->is_read = model->is_read;
    c->is_tail = model->is_tail;
    c->done = 0;
    asked++;
    pi_task_callback(&c->task, receive, 0);
    order_memory();
    pi_cl_send_task_to_fc(&c->task);
}

/* The uDMA writes whole words to L2, beyond the end when the length is odd: the last bytes go elsewhere and are copied.
 */
static void ask_run(struct command model, uint32_t bytes) {
    const uint32_t rest = model.is_read ? bytes % 4 : 0;
    bytes -= rest;
    while (bytes) {
        const uint32_t n = bytes < LONGEST ? bytes : LONGEST;
        ask(&model, n);
        model.ram += n;
        model.l2 += n;
        bytes -= n;
    }
    model.is_tail = 1;
    if (rest) ask(&model, rest);
}

void ram_start(int ticket, const struct rt_transfer *t, int is_read) {
    order_memory();
    const uint32_t bytes = t->bytes, ram_pitch = is_read ? t->from_pitch : t->to_pitch;
    const uint32_t l2_pitch = is_read ? t->to_pitch : t->from_pitch;
    uint32_t left = bytes ? t->rows : 0;
    struct command model = {0};
    model.is_read = is_read;
    model.ram = is_read ? t->from : t->to;
    model.l2 = (uint8_t *)(is_read ? t->to : t->from);
    if (left && ram_pitch == bytes && l2_pitch == bytes) {
        ask_run(model, bytes * left);
        left = 0;
    }
    /* A row that ends within a word is mended by those that follow it, so the last ones go alone. */
    const uint32_t alone = bytes % 4 == 0 ? 0 : bytes == 1 ? 3 : 1;
    while (l2_pitch == bytes && bytes <= LONGEST && left > alone + 1) {
        const uint32_t most = LONGEST / bytes, n = left - alone < most ? left - alone : most;
        model.row = bytes;
        model.pitch = ram_pitch;
        ask(&model, n * bytes);
        model.row = 0;
        model.ram += n * ram_pitch;
        model.l2 += n * l2_pitch;
        left -= n;
    }
    for (; left; left--, model.ram += ram_pitch, model.l2 += l2_pitch) ask_run(model, bytes);
    newest[ticket] = asked;
}

void ram_wait(int ticket) {
    while ((int32_t)(complete - newest[ticket]) < 0) cl_wait_task(&ring[(newest[ticket] - 1) % RING].done);
    order_memory();
}
