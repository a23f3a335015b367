/* The layer of ../portable/recurrent.c by a team of cores, which divide the units and meet after every step.
 *
 * p is [steps, batch, gates, units], r [gates, units, units], h and y [batch, units] a step, all floats. The inner loop
 * is a load of r, one of h for all gates, and a multiplication and addition of floats for each r: instructions bound
 * it, of few units the meetings.
 */
#include "deeploy_rt.h"

#define CORE() rt_core()
#define MEET(k) \
    if ((k)->cores > 1) rt_barrier()

#include "../portable/recurrent.c"
