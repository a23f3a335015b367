/* Links between simulated chips. Siracusa's model has none, so messages are bytes in pipes of the machine that runs the
 * simulators, one pipe for each sender and receiver: "../link_S_R" of the simulator's working directory. They take no
 * simulated time. Core 0 asks, the controller moves; a chip that waits for another stands still with its simulator.
 *
 * In a pipe every message begins with its tag and its length. */
#include "cluster.h"
#include "console.h"
#include "deeploy_link.h"
#include "pulp.h"

enum { MOST_CHIPS = 1000 };

struct header {
    int32_t tag;
    uint32_t bytes;
};

static IN_L1 struct {
    volatile int is_asked;
    int is_send, peer;
    struct header header;
    void *array;
} request;

/* The controller's: handles of the pipes to and from each peer, one more than what was opened. */
static int16_t pipes[2][MOST_CHIPS];

static char *put_number(char *at, int number) {
    if (number >= 10) at = put_number(at, number / 10);
    *at = (char)('0' + number % 10);
    return at + 1;
}

static _Noreturn void fail(const char *what) {
    print_text("error: chip ");
    print_number(CHIP);
    print_text(request.is_send ? ", which sends to chip " : ", which waits for chip ");
    print_number(request.peer);
    print_text(what);
    print_text("\n");
    bare_exit(1);
}

/* Opens a pipe, which waits until the peer opens its end. */
static int opened(int is_send, int peer) {
    if (peer < 0 || peer >= MOST_CHIPS) fail(": this runtime has no pipe to it");
    int16_t *const known = &pipes[is_send][peer];
    if (*known == 0) {
        char path[] = "../link_000000_000000", *at = path + sizeof "../link_" - 1;
        at = put_number(at, is_send ? CHIP : peer);
        *at++ = '_';
        *put_number(at, is_send ? peer : CHIP) = 0;
        *known = (int16_t)(file_open(path, is_send) + 1);
        if (*known <= 0) fail(": the pipe cannot be opened");
    }
    return *known - 1;
}

void link_serve(void) {
    if (!request.is_asked) return;
    const int pipe = opened(request.is_send, request.peer);
    if (request.is_send) {
        if (file_write(pipe, &request.header, sizeof request.header) ||
            file_write(pipe, request.array, request.header.bytes))
            fail(": it is gone");
    } else {
        struct header header;
        if (file_read(pipe, &header, sizeof header)) fail(": it is gone");
        if (header.tag != request.header.tag || header.bytes != request.header.bytes) fail(": it sent another message");
        if (file_read(pipe, request.array, header.bytes)) fail(": it is gone");
    }
    order_memory();
    request.is_asked = 0;
    store(CLUSTER_EVENTS + 0x600, 1);
}

static void ask(int is_send, int peer, int tag, void *array, uint32_t bytes) {
    request.is_send = is_send;
    request.peer = peer;
    request.header = (struct header){tag, bytes};
    request.array = array;
    order_memory();
    request.is_asked = 1;
    store(INTERRUPT_SET, INTERRUPT_CLUSTER);
    while (request.is_asked) cluster_sleep(EVENT_SOFTWARE);
    order_memory();
}

void rt_send(int peer, int tag, const void *from, uint32_t bytes) {
    ask(1, peer, tag, (void *)(uintptr_t)from, bytes);
}

void rt_recv(int peer, int tag, void *to, uint32_t bytes) {
    ask(0, peer, tag, to, bytes);
}
