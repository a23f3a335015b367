/* The machine's table, as the compiler writes it, with arenas for the test. */
#include "deeploy_rt.h"

static const struct rt_level levels[] = {
    {"L1", 240 * 1024, 4, 0, 0},
    {"L2", 512 * 1024, 4, 0, 0},
    {"L3", 4096 * 1024, 16, 1 << 20, 1},
};

static const struct rt_engine engines[] = {
    {"L2_L1", 0, 1, 65535, 65535, 131071, 65535, 1, 0, 8, 16},
    {"L3_L2", 1, 2, 32768, 1, 32768, 0, 1, 0, 8, 8},
};

const struct rt_machine rt_machine = {"siracusa", 8, 3, 2, levels, engines, 0, 0};
