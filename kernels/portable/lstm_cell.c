/* One step of an LSTM of floats with a product of the state that was made outside: gates are p + q.
 *
 * p and q are [batch, gates, units], c, cells and y [batch, units]. A unit is four sums and its functions, which bound
 * it.
 */
#include "recurrent.h"

#include "lstm_unit.h"

void KERNEL(const struct recurrent *k) {
    for (int n = 0; n < k->batch; n++) {
        const float *const p = (const float *)k->p + n * k->p_batch, *const q = (const float *)k->q + n * k->q_batch;
        float *const y = (float *)k->y + n * k->y_batch;
        for (int u = 0; u < k->units; u++) {
            float a[GATES];
            for (int g = 0; g < GATES; g++) a[g] = p[g * k->p_gate + u] + q[g * k->q_gate + u];
            y[u] = lstm(k, a, (const float *)k->c + n * k->c_batch, (float *)k->cells + n * k->cells_batch, u);
        }
    }
}
