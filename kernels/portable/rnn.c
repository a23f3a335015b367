/* y = f(p + r * h_before), step by step, of floats.
 *
 * p is [steps, batch, gates, units], r [gates, units, units], h and y [batch, units] a step. The inner loop is a load
 * of r, one of h for all gates, and a multiplication and addition for each r: loads and additions that wait for each
 * other bound it.
 */
#include "alone.h"
#include "rnn_layer.h"

void KERNEL(const struct recurrent *k) {
    run_layer(k);
}
