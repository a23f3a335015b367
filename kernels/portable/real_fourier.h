/* The first half of the frequencies of rows of real numbers. */
#ifndef DEEPLOY_REAL_FOURIER_H
#define DEEPLOY_REAL_FOURIER_H

struct real_fourier {
    const float *x, *w; /* w: factors exp(-2 pi i k / points), real and imaginary parts in turn */
    float *y;           /* points + 2 numbers for each row */
    int rows, points, x_step, y_step;
};

#endif
