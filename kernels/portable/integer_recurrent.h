/* The steps of a recurrent layer of quantised values in one direction; distances in elements, units are neighbours.
 * Gates lie in the order of ONNX. */
#ifndef DEEPLOY_INTEGER_RECURRENT_H
#define DEEPLOY_INTEGER_RECURRENT_H

#include <stdint.h>

struct integer_recurrent {
    const int32_t *p;             /* products of the inputs */
    const int16_t *r;             /* weights of the state [gate][unit][unit] */
    const int16_t *h;             /* states before the first step */
    const int32_t *c;             /* and cells */
    const int32_t *mul_p, *mul_r; /* of both products [gate][unit], in front of a shift */
    const int16_t *tables;        /* of one function after the other */
    const int32_t *b;             /* of a GRU's candidate */
    int16_t *y;                   /* states behind every step */
    int32_t *cells;               /* behind the last one */
    int steps, batch, units, reverse, shift;
    int cores; /* that divide the units */
    int p_step, p_batch, p_gate, h_batch, c_batch, y_step, y_batch, cells_batch;
};

#endif
