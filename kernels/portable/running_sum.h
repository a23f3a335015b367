/* Running sums along the middle one of three axes. */
#ifndef DEEPLOY_RUNNING_SUM_H
#define DEEPLOY_RUNNING_SUM_H

struct running_sum {
    const void *x;
    void *y;
    int extent[3];
    int x_step[2], y_step[2]; /* of the outer axes; the last one is dense */
    int exclusive, reverse;
};

#endif
