/* Constants of network ${prefix}, in the layouts that its kernels read. */
#include "${prefix}_weights.h"

#include <math.h>

#ifdef DEEPLOY_BINARY_WEIGHTS
const unsigned char *${prefix}_weights;
#else
% for k in constants:
const ${k.type} ${k.name}[${k.elements}] = {
${k.values}
};
% endfor
#endif
