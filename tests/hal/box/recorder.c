/* A machine with one engine whose limits the test sets; what the box mover starts goes to the test. */
#include <string.h>

#include "deeploy_box.h"

static struct rt_engine engine = {.name = "recorder", .far = 1, .alignment = 1, .tickets = 8, .max_outstanding = 1};

static const struct rt_level levels[] = {{"near", 1 << 20, 1, 0, 0}, {"far", 1 << 20, 1, 0, 1}};

const struct rt_machine rt_machine = {"recorder", 1, 2, 1, levels, &engine, 0, 0};

typedef void record(int ticket, uint64_t to, uint64_t from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                    uint32_t from_pitch);

static record *send;

void rt_start(int number, int ticket, const struct rt_transfer *t) {
    if (number == 0) send(ticket, t->to, t->from, t->bytes, t->rows, t->to_pitch, t->from_pitch);
}

void recorder_limits(record *to, uint32_t max_bytes, uint32_t max_rows, uint32_t max_total, uint32_t max_pitch) {
    send = to;
    engine.max_bytes = max_bytes, engine.max_rows = max_rows;
    engine.max_total = max_total, engine.max_pitch = max_pitch;
}

int recorder_axes(void) {
    return BOX_AXES;
}

void recorder_move(int is_fetch, int ticket, uint64_t near, uint64_t far, uint32_t bytes, int axes,
                   const uint32_t *count, const uint32_t *pitch) {
    struct rt_box box = {.near = near, .far = far, .bytes = bytes, .axes = axes};
    memcpy(box.count, count, sizeof *count * (size_t)axes);
    memcpy(box.pitch, pitch, sizeof *pitch * (size_t)axes);
    if (is_fetch)
        rt_fetch(0, ticket, &box);
    else
        rt_store(0, ticket, &box);
}
