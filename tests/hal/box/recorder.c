/* A machine with one engine whose limits the test sets; what the box mover starts goes to the test. */
#include "deeploy_rt.h"

struct rt_engine recorder_engine;
void (*recorder_start)(int ticket, uint64_t to, uint64_t from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                       uint32_t from_pitch);

static const struct rt_level levels[] = {{"near", 1 << 20, 1, 0, 0}, {"far", 1 << 20, 1, 0, 1}};

const struct rt_machine rt_machine = {"recorder", 1, 2, 1, levels, &recorder_engine};

void rt_start(int engine, int ticket, const struct rt_transfer *t) {
    (void)engine;
    recorder_start(ticket, t->to, t->from, t->bytes, t->rows, t->to_pitch, t->from_pitch);
}
