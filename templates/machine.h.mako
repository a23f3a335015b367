/* Indices of the memories and transfer engines of ${target.name} in the tables of machine.c. */
#ifndef DEEPLOY_MACHINE_H
#define DEEPLOY_MACHINE_H

enum {
% for index, memory in enumerate(target.memories):
    LEVEL_${memory.name} = ${index},
% endfor
};

enum {
% for index, path in enumerate(target.paths):
    DMA_${path.name} = ${index},
% endfor
};

% if any(engine.accelerator for engine in target.engines):
enum {
% for index, engine in enumerate(e for e in target.engines if e.accelerator):
    ACCELERATOR_${engine.name} = ${index},
% endfor
};

% endif
#endif
