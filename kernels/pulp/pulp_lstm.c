/* The layer of ../portable/lstm.c by a team of cores, which divide the units and meet after every step.
 *
 * p is [steps, batch, gates, units], r [gates, units, units], h and y [batch, units] a step, all floats. The inner loop
 * is a load of r, one of h for all gates, and a multiplication and addition for each r: instructions bound it, of few
 * units the meetings.
 */
#include "pulp_team.h"
#include "../portable/lstm_layer.h"

void KERNEL(const struct recurrent *k) {
    run_layer(k);
}
