<% P = prefix.upper() %>\
/* Constants of network ${prefix}.
 *
 * By default they are compiled in. With -DDEEPLOY_BINARY_WEIGHTS they are read from ${prefix}_weights instead: set this pointer to
 * the contents of ${prefix}_weights.bin, aligned to 16 bytes, on a little-endian machine, before the network is initialised.
% if is_flat:
 * ${prefix}_init checks them. Weights of another model fit where its code is the same: where ${P}_WEIGHTS_CODE is.
% endif
 */
#ifndef ${P}_WEIGHTS_H
#define ${P}_WEIGHTS_H

#include <stdint.h>
% for owner in owners:
% if owner != prefix:
#include "${owner}_weights.h"
% endif
% endfor

#ifdef DEEPLOY_BINARY_WEIGHTS
% if is_flat:
#include "deeploy_check.h"

#define ${P}_WEIGHTS_BYTES ${weights_bytes} /* of ${prefix}_weights.bin: the constants, and 16 bytes that deeploy_weights_fit reads */
#define ${P}_WEIGHTS_CODE ${code}u /* a number of the code that reads them */

% endif
extern const unsigned char *${prefix}_weights;
% for k in constants:
#define ${k.name} ((const ${k.type} *)(const void *)(${prefix}_weights + ${k.offset}))
% endfor
#else
% for k in constants:
extern const ${k.type} ${k.name}[${k.elements}]; /* ${k.tensor} */
% endfor
#endif
% if borrowed:

/* Equal to constants of another network, and stored there. */
% for k in borrowed:
#define ${k.name} ${k.stored} /* ${k.tensor} */
% endfor
% endif

#endif
