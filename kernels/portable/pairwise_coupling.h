/* Probabilities of classes from those of each of two: the second method of Wu, Lin and Weng (Journal of Machine
 * Learning Research 5, 2004), algorithm 2. */
#ifndef DEEPLOY_PAIRWISE_COUPLING_H
#define DEEPLOY_PAIRWISE_COUPLING_H

struct pairwise_coupling {
    const float *x; /* [rows, pairs]: the probability of the first class of a pair */
    float *y;       /* [rows, classes] */
    float *work;    /* [classes + 1, classes] */
    int rows, classes, x_step, y_step;
    int rounds;
    float precision; /* the error at which rounds end */
};

#endif
