/* How many of a channel's thresholds every element reaches. */
#ifndef DEEPLOY_THRESHOLDS_H
#define DEEPLOY_THRESHOLDS_H

struct thresholds {
    const void *x, *t;
    void *y;
    int extent[3];                    /* outer, channels, inner */
    int x_step[2], y_step[2], t_step; /* of the outer axes; the last one is dense */
    int count;                        /* thresholds of a channel, the smallest first */
};

#endif
