/* The networks of this project. */
#include "deeploy_network.h"
% for prefix in prefixes:
#include "${prefix}.h"
% endfor

/* Weak symbols: if several projects are linked into one program, the linker keeps one of their lists. */
#ifdef __GNUC__
#define ONE_OF_SEVERAL __attribute__((weak))
#else
#define ONE_OF_SEVERAL
#endif

ONE_OF_SEVERAL const struct deeploy_network *const deeploy_networks[] = {
% for prefix in prefixes:
    &${prefix}_network,
% endfor
};
ONE_OF_SEVERAL const int deeploy_network_count = ${len(prefixes)};
