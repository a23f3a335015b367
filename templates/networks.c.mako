/* The networks of this project. */
#include "deeploy_network.h"
% for prefix in prefixes:
#include "${prefix}.h"
% endfor

const struct deeploy_network *const deeploy_networks[] = {
% for prefix in prefixes:
    &${prefix}_network,
% endfor
};
const int deeploy_network_count = ${len(prefixes)};
