<%
number = {memory.name: index for index, memory in enumerate(target.memories)}
accelerators = [engine for engine in target.engines if engine.accelerator]
%>\
/* The memories and transfer engines of ${target.name}, with the arena sizes that this project's plan uses. */
#include "deeploy_rt.h"

static const struct rt_level levels[] = {
% for memory in target.memories:
    {"${memory.name}", ${arenas[memory.name]}, ${memory.alignment}, ${constants.get(memory.name, 0)}, ${int(memory.is_far)}},
% endfor
};

static const struct rt_engine engines[] = {
% for path in target.paths:
    {"${path.name}", ${number[path.near]}, ${number[path.far]}, .near_pitch = ${int(path.near_pitch)}, ${", ".join(f".{name} = {limit}" for name, limit in path.limits.items())}},
% endfor
};

% if accelerators:
static const struct rt_accelerator accelerators[] = {
% for engine in accelerators:
    {"${engine.accelerator}", ${number[engine.memory]}, ${number.get(engine.weights, -1)}, ${engine.jobs}},
% endfor
};

% endif
const struct rt_machine rt_machine = {"${target.name}", ${cores}, ${len(target.memories)}, ${len(target.paths)}, levels, engines, ${len(accelerators)}, ${"accelerators" if accelerators else 0}};
