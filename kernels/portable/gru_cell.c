/* One step of a GRU of floats with a product of the state that was made outside: gates are p + q, the candidate's q
 * times the reset gate.
 *
 * p and q are [batch, gates, units], h and y [batch, units]. A unit is three sums and its functions, which bound it.
 */
#include "recurrent.h"

#include "gru_unit.h"

void KERNEL(const struct recurrent *k) {
    for (int n = 0; n < k->batch; n++) {
        const float *const p = (const float *)k->p + n * k->p_batch, *const q = (const float *)k->q + n * k->q_batch;
        float *const y = (float *)k->y + n * k->y_batch;
        for (int u = 0; u < k->units; u++) {
            const float update = gate(k, p[u] + q[u]), reset = gate(k, p[k->p_gate + u] + q[k->q_gate + u]);
            const float candidate = p[2 * k->p_gate + u] + reset * q[2 * k->q_gate + u];
            y[u] = gru(k, update, candidate, ((const float *)k->h)[n * k->h_batch + u]);
        }
    }
}
