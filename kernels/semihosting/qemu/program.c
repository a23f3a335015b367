#include "program.h"

extern unsigned char __heap_start[], __heap_end[]; /* of link.ld */

void *program_allocate(uint32_t bytes) {
    static uintptr_t heap;
    if (!heap) heap = ((uintptr_t)__heap_start + 63) & ~(uintptr_t)63;
    const uint32_t rounded = (bytes + 63) & ~63u;
    if (rounded < bytes || heap > (uintptr_t)__heap_end || rounded > (uintptr_t)__heap_end - heap)
        program_fail("inputs, outputs and arena: no room in memory");
    void *const result = (void *)heap; /* the heap is memory of its own, and begins at an address of the linker */
    heap += rounded;
    return result;
}

static void **allocate_all(const struct deeploy_tensor *tensors, int count) {
    void **const arrays = program_allocate((uint32_t)(count + 1) * (uint32_t)sizeof *arrays);
    for (int i = 0; i < count; i++) arrays[i] = program_allocate((uint32_t)tensors[i].bytes);
    return arrays;
}

struct program program_begin(const struct deeploy_network *net) {
    struct program program = {net, allocate_all(net->inputs, net->input_count),
                              allocate_all(net->outputs, net->output_count), 0};
    if (net->arena_bytes) program.arena = program_allocate((uint32_t)net->arena_bytes);
    if (net->init(program.arena, net->arena_bytes) != DEEPLOY_OK) program_fail("init failed");
    return program;
}

uint32_t program_bytes(const struct deeploy_tensor *tensors, int count) {
    uint32_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += (uint32_t)tensors[i].bytes;
    return bytes;
}
