/* The first half of the frequencies of rows of real numbers, divided by their number, in 16 bits. */
#ifndef DEEPLOY_FIXED_FOURIER_H
#define DEEPLOY_FIXED_FOURIER_H

#include <stdint.h>

struct fixed_fourier {
    const int16_t *x, *w; /* w: factors exp(-2 pi i k / points) in units of 2^-15, real and imaginary parts in turn */
    int16_t *y;           /* points + 2 numbers for each row */
    int rows, points, x_step, y_step;
};

#endif
