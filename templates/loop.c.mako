/* A loop of ${body.rounds} iterations. Its body is a network of ${len(layers)} layers, whose arena is part of the loop's working memory. */
#undef ACC_T /* the headers below only declare argument structures */
#include "${struct}.h"
% for header in headers:
#include "${header}.h"
% endfor

#include <math.h>
#include <stdint.h>

#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
% for name, kind in functions:
#define ${name} JOIN(KERNEL, _${name})
void ${name}(const struct ${kind} *k);
% endfor

enum {
    ROUNDS = ${body.rounds},
    CARRIED = ${carried[0] if carried else 0}, /* byte offset of the loop-carried values: two copies of each, after the arena */
% for offset, name in offsets:
    ${name} = ${offset},
% endfor
};

/* The arrays of one iteration. */
struct round {
    const void *const *inputs;
    void *const *outputs;
    uintptr_t arena;
};

typedef const struct round instance;

% for text in layers:
${text}
% endfor
void KERNEL(const struct ${struct} *k) {
    const void *inputs[${max(1, len(inputs) + constants)}];
    void *outputs[${max(1, len(outputs))}];
    const struct round round = {inputs, outputs, (uintptr_t)k->scratch}, *const self = &round;
% if carried:
    unsigned char *const carried = (unsigned char *)k->scratch + CARRIED;
% endif
% if body.has_number:
    int64_t number;
% endif
% for position in range(parts, len(inputs) - body.has_number):
    inputs[${position}] = k->inputs[${position}];
% endfor
% if body.has_number:
    inputs[${len(inputs) - 1}] = &number;
% endif
% for position in range(constants):
    inputs[${len(inputs) + position}] = k->inputs[${len(inputs) - body.has_number + position}];
% endfor
    for (int32_t i = 0; i < ROUNDS; i++) {
<% at = lambda is_backwards: "(ROUNDS - 1 - i)" if is_backwards else "i" %>\
% if body.has_number:
        number = i;
% endif
% for position, bytes in enumerate(inputs[:body.carried]):
        inputs[${position}] = i ? carried + ${carried[position] - carried[0]} + (i + 1) % 2 * ${bytes} : k->inputs[${position}];
        outputs[${position}] = i < ROUNDS - 1 ? carried + ${carried[position] - carried[0]} + i % 2 * ${bytes} : k->outputs[${position}];
% endfor
% for position, is_backwards in enumerate(body.backwards, body.carried):
        inputs[${position}] = (const unsigned char *)k->inputs[${position}] + ${at(is_backwards)} * ${inputs[position]};
% endfor
% for position, is_backwards in enumerate(body.results_backwards, body.carried):
        outputs[${position}] = (unsigned char *)k->outputs[${position}] + ${at(is_backwards)} * ${outputs[position]};
% endfor
% for name in names:
        layer_${name}(self);
% endfor
    }
}
