/* The steps of a recurrent layer in one direction; distances in elements, units are neighbours.
 *
 * A layer of floats has the weights `r` of its state [gate][unit][unit], from which every step makes the products that
 * a cell of one step gets as `q` [batch][gate][unit]. Gates lie in the order of ONNX. */
#ifndef DEEPLOY_RECURRENT_H
#define DEEPLOY_RECURRENT_H

#include <stdint.h>

struct recurrent {
    const void *p, *q, *r; /* products of the inputs, and of the state or its weights */
    const void *h, *c;     /* states before the first step */
    const void *b, *w;     /* biases of a GRU's candidate, peepholes of an LSTM [3][unit]; may be absent */
    void *y, *cells;       /* states behind every step, and an LSTM's cells behind the last one */
    float *state;          /* of a GRU that resets its state: the update gate and what is left of the state */
    int steps, batch, units, reverse;
    int cores; /* that divide the units of a layer */
    int p_step, p_batch, p_gate, q_batch, q_gate, h_batch, c_batch, y_step, y_batch, cells_batch, w_gate;
    int input_forget;
    float clip, alpha[3], beta[3]; /* no limit where clip is 0 */
};

#endif
