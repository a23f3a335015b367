/* The planned buffers of network ${prefix} and their lifetimes, which the host model of the machine checks at run time. */
#include "deeploy_machine.h"
#include "deeploy_rt.h"

enum { BLOCKS = ${len(blocks)} };

#ifdef RT_CHECKED
static const struct rt_block blocks[${max(1, len(blocks))}] = {
% for name, level, offset, size, first, last in blocks:
    {${name}, LEVEL_${level}, ${offset}, ${size}, ${first}, ${last}},
% endfor
% if not blocks:
    {0},
% endif
};
#endif
