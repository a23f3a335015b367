/* Constants of network ${prefix}, in the layouts that its kernels read. */
#include "${prefix}_weights.h"

#include <math.h>

#ifdef DEEPLOY_BINARY_WEIGHTS
const unsigned char *${prefix}_weights;
#else
#ifndef DEEPLOY_CONSTANTS
#define DEEPLOY_CONSTANTS
#endif
% for k in constants:
DEEPLOY_CONSTANTS const ${k.type} ${k.name}[${k.elements}] = {
${k.values}
};
% endfor
#endif
