/* An element of weights as ACC_T; of floats in 16 bits, W_FROM is the function of halves.h that widens them. */
#ifndef DEEPLOY_WEIGHTS_H
#define DEEPLOY_WEIGHTS_H

#ifdef W_FROM
#include "halves.h"
#define WEIGHT(w) W_FROM(w)
#else
#define WEIGHT(w) ((ACC_T)(w))
#endif

#endif
