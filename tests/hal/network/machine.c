/* A small machine with every kind of limit: no pitch near the cores, a far level of handles, engines with short queues.
 */
#include "deeploy_rt.h"

static const struct rt_level levels[] = {
    {"L1", 1024, 4, 0, 0},
    {"L2", 4096, 4, 0, 0},
    {"L3", 8192, 16, 128, 1},
};

static const struct rt_engine engines[] = {
    {"L2_L1", 0, 1, 128, 8, 512, 256, 1, 0, 4, 3},
    {"L3_L2", 1, 2, 64, 1, 64, 0, 4, 0, 2, 2},
};

const struct rt_machine rt_machine = {"small", 4, 3, 2, levels, engines, 0, 0};
