/* memset and memcpy, which compilers call to clear and copy argument structures, once per kernel call. picolibc's
 * versions work byte by byte. The fabric controller and the cores can load and store words at any address. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct word {
    uint32_t value;
} __attribute__((packed, aligned(1), may_alias));

enum { WORD = sizeof(uint32_t), BLOCK = 4 * WORD };

/* Keeps a compiler from seeing a call of memset or memcpy in a loop of theirs. */
#define LOOP_OF_ITS_OWN __asm__ volatile("" ::: "memory")

/* A word at any address in one instruction: compilers would take four for a packed one. */
static inline uint32_t load_word(const uint8_t *from) {
    uint32_t value;
    __asm__("lw %0, %1" : "=r"(value) : "m"(*(const struct word *)from));
    return value;
}

static inline void store_word(uint8_t *to, uint32_t value) {
    __asm__("sw %1, %0" : "=m"(*(struct word *)to) : "r"(value));
}

void *memset(void *to, int value, size_t count) {
    uint8_t *at = to;
    const uint32_t word = (uint8_t)value * 0x01010101u;
    for (; count >= BLOCK; count -= BLOCK, at += BLOCK) {
        store_word(at, word), store_word(at + WORD, word);
        store_word(at + 2 * WORD, word), store_word(at + 3 * WORD, word);
    }
    for (; count >= WORD; count -= WORD, at += WORD) store_word(at, word);
    for (; count; count--, at++) {
        *at = (uint8_t)value;
        LOOP_OF_ITS_OWN;
    }
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
    uint8_t *at = to;
    const uint8_t *source = from;
    for (; count >= BLOCK; count -= BLOCK, at += BLOCK, source += BLOCK) {
        const uint32_t a = load_word(source), b = load_word(source + WORD);
        const uint32_t c = load_word(source + 2 * WORD), d = load_word(source + 3 * WORD);
        store_word(at, a), store_word(at + WORD, b);
        store_word(at + 2 * WORD, c), store_word(at + 3 * WORD, d);
    }
    for (; count >= WORD; count -= WORD, at += WORD, source += WORD) store_word(at, load_word(source));
    for (; count; count--, at++, source++) {
        *at = *source;
        LOOP_OF_ITS_OWN;
    }
    return to;
}
