/* The steps of a recurrent layer of quantised values in one direction; distances in elements, units are neighbours.
 * Gates lie in the order of ONNX. */
#ifndef DEEPLOY_INTEGER_RECURRENT_H
#define DEEPLOY_INTEGER_RECURRENT_H

#include <stdint.h>

struct integer_recurrent {
    const int32_t *p;       /* products of the inputs */
    const int8_t *r;        /* weights of the state [gate][unit][unit] */
    const int16_t *h;       /* states before the first step */
    const int32_t *c;       /* and cells */
    const int32_t *factors; /* [unit][gate]: of both products, in front of a shift by 32 */
    const int16_t *tables;  /* of one function after the other */
    const int32_t *b;       /* of a GRU's candidate */
    int16_t *y;             /* states behind every step */
    int32_t *cells;         /* behind the last one */
    int32_t *sums;          /* room for those of all gates of all units */
    int8_t *state;          /* of a team: room for the states of two steps, as its kernel reads them */
    int steps, batch, units, reverse, shift_p, shift; /* of p, to the left, and of sums */
    int cores;                                        /* that divide the units */
    int functions;                                    /* tables: an LSTM has two where the last two are equal */
    int p_step, p_batch, p_gate, h_batch, c_batch, y_step, y_batch, cells_batch;
};

#endif
