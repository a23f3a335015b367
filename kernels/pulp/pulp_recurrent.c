/* The layer of ../portable/recurrent.c by a team of cores. */
#include "deeploy_rt.h"

#define CORE() rt_core()
#define MEET(k) \
    if ((k)->cores > 1) rt_barrier()

#include "../portable/recurrent.c"
