/* ArgMax and ArgMin: the index of the largest or smallest element of a row. */
#ifndef DEEPLOY_ARG_EXTREME_H
#define DEEPLOY_ARG_EXTREME_H

struct arg_extreme {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6]; /* rows */
    int count, step;                     /* elements of a row, and how far they are apart */
};

#endif
