/* Garbage for unwritten and freed memory: a pattern that depends on the address, so that it can be recognised later.
 *
 * The pattern of a place is a hash of its address within its space, of the space and of the inference, in words of
 * eight bytes. Numbers for the adversary's choices come from the same hash (splitmix64; Steele, Lea, Flood 2014).
 */
#include <string.h>

#include "model.h"

static uint64_t state, pattern_seed;

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t host_random(void) {
    return mix(state += 0x9E3779B97F4A7C15u);
}

/* A number from 0 to bound - 1. */
uint32_t host_below(uint32_t bound) {
    return (uint32_t)(host_random() % bound);
}

void host_seed(uint64_t seed) {
    state = mix(seed + 1);
    pattern_seed = mix(~seed);
}

/* Every inference has its own pattern, so that results that depend on unwritten memory differ between inferences. */
void host_new_poison(void) {
    pattern_seed = mix(pattern_seed + 1);
}

static uint64_t word(const struct host_space *space, uint64_t index) {
    const uint64_t z = (pattern_seed ^ ((uint64_t)space->salt << 40) ^ index) * 0x9E3779B97F4A7C15u;
    return (z ^ (z >> 32)) * 0xD6E8FEB86659FD93u;
}

static unsigned char byte(const struct host_space *space, uint64_t at) {
    const uint64_t value = word(space, at / 8);
    return ((const unsigned char *)&value)[at % 8];
}

/* Both functions walk through whole levels in every step; the sanitizers would find nothing there and cost time. */
#define PLAIN __attribute__((no_sanitize_address, no_sanitize_thread))

PLAIN void host_poison(const struct host_space *space, int64_t offset, uint64_t bytes) {
    unsigned char *const memory = space->memory - space->before;
    uint64_t at = (uint64_t)(offset + (int64_t)space->before);
    const uint64_t end = at + bytes;
    for (; at < end && at % 8; at++) memory[at] = byte(space, at);
    for (; end - at >= 8; at += 8) {
        const uint64_t value = word(space, at / 8);
        memcpy(memory + at, &value, 8);
    }
    for (; at < end; at++) memory[at] = byte(space, at);
    host_note_write(space, offset, bytes);
}

/* How many bytes from the first one on are as host_poison left them. */
PLAIN uint64_t host_intact(const struct host_space *space, int64_t offset, uint64_t bytes) {
    const unsigned char *const memory = space->memory - space->before;
    const uint64_t begin = (uint64_t)(offset + (int64_t)space->before), end = begin + bytes;
    uint64_t at = begin;
    for (; at < end && at % 8; at++) {
        if (memory[at] != byte(space, at)) return at - begin;
    }
    for (; end - at >= 8; at += 8) {
        uint64_t found;
        memcpy(&found, memory + at, 8);
        if (found != word(space, at / 8)) break;
    }
    for (; at < end; at++) {
        if (memory[at] != byte(space, at)) return at - begin;
    }
    return bytes;
}
