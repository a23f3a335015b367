/* What compilers call to clear and copy, at every address and of every short length. */
#include <string.h>

#include "check.h"

enum { LONGEST = 45, AROUND = 8, SEED = 5 };

static uint8_t from[LONGEST + AROUND], to[LONGEST + 2 * AROUND];

/* `first` bytes, then `count` that are something else, then bytes again that fill wrote. */
static int is_between(uint32_t first, uint32_t count, int is_right) {
    const uint32_t end = first + count;
    return is_right && is_filled((rt_address)to, first, 0, SEED) &&
           is_filled((rt_address)(to + end), sizeof to - end, end, SEED);
}

static int clears(uint32_t first, uint32_t count) {
    fill((rt_address)to, sizeof to, SEED);
    int is_right = memset(to + first, 0x1A5, count) == to + first;
    for (uint32_t i = 0; i < count; i++) is_right &= to[first + i] == 0xA5;
    return is_between(first, count, is_right);
}

static int copies(uint32_t first, uint32_t source, uint32_t count) {
    fill((rt_address)to, sizeof to, SEED);
    int is_right = memcpy(to + first, from + source, count) == to + first;
    is_right &= is_filled((rt_address)(to + first), count, source, SEED + 1);
    return is_between(first, count, is_right);
}

void test_memory(void) {
    int cleared = 1, copied = 1;
    fill((rt_address)from, sizeof from, SEED + 1);
    for (uint32_t count = 0; count <= LONGEST; count++) {
        for (uint32_t first = 0; first < 4; first++) {
            cleared &= clears(first, count);
            for (uint32_t source = 0; source < 4; source++) copied &= copies(first, source, count);
        }
    }
    check("memset at every address, of every length", cleared);
    check("memcpy between any addresses, of every length", copied);
}
