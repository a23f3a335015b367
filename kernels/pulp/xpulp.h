/* The Xpulp v2 instructions that the kernels use: `.insn` for stock RISC-V compilers, builtins of the PULP compilers,
 * and portable C, which says what they do.
 *
 * Where XPULP_INSN is 1, assembly may be used: hardware loops and post-increment loads have no C. A kernel asks it as
 * it asks anything else, `if (XPULP_INSN)`, and has C for the rest; elsewhere XP_INSN and XP_BLOCK are nothing. The
 * bodies on builtins need a PULP compiler, which finds loops by itself; they are written from that compiler's
 * documentation and were never built by the project's tests. XPULP_PORTABLE selects portable C on any machine.
 *
 * Variants of a block are directives of the assembler on constant operands.
 */
#ifndef DEEPLOY_XPULP_H
#define DEEPLOY_XPULP_H

#include <stdint.h>
#include <string.h>

#if defined(__riscv) && __riscv_xlen == 32 && !defined(__pulp__) && !defined(XPULP_PORTABLE)
#define XPULP_INSN 1
#define XP_INSN(...) __asm__(__VA_ARGS__)           /* of operands alone */
#define XP_BLOCK(...) __asm__ volatile(__VA_ARGS__) /* on memory */
#else
#define XPULP_INSN 0
#define XP_INSN(...) (void)0
#define XP_BLOCK(...) (void)0
/* Names that blocks alone use are unused here. */
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#endif

/* Instructions on floats. */
#ifdef __riscv_flen
#define XPULP_FLOATS XPULP_INSN
#else
#define XPULP_FLOATS 0
#endif

/* Not -O3: a kernel's code is mostly run with cold instruction caches, 16 bytes of which take as long as 20
 * instructions; the loops that count are assembly. */
#if XPULP_INSN && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

/* XP_UNKNOWN keeps the compiler from unrolling a loop that it knows to be short: a core holds 512 bytes of
 * instructions. Functions OUT_OF_LINE keep their registers to themselves. */
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Woverlength-strings" /* a block is one string, with all of its variants */
#define XP_UNKNOWN(count) __asm__("" : "+r"(count))
#define OUT_OF_LINE static __attribute__((noinline, unused))
#else
#define XP_UNKNOWN(count) (void)0
#define OUT_OF_LINE static inline
#endif
#ifdef __clang__
enum { IS_CLANG = 1 };
#else
enum { IS_CLANG = 0 };
#endif
/* Functions whose constant arguments choose instructions. */
#define FOLDED static inline __attribute__((always_inline, unused))

/* How blocks begin and end, and a hardware loop of so many instructions of four bytes each. */
#define BEGIN ".option push\n.option norvc\n"
#define LOOP(count, instructions) ".insn i 0x7b, 4, x0, " count ", " #instructions "*2\n"
#define END ".option pop\n"

/* Variants of a block, by constant operands. */
#define IF(holds, text) ".if " holds "\n" text ".endif\n"
#define EITHER(holds, text, other) ".if " holds "\n" text ".else\n" other ".endif\n"

/* Instructions that many blocks have. */
#define XP_LOAD(to, from) ".insn i 0x0b, 2, " to ", %[" from "], 4\n"
#define XP_MAC(acc, x, w) ".insn r 0x33, 0, 0x21, " acc ", " x ", " w "\n"
#define XP_CLIP(to, from, bound) ".insn r 0x33, 5, 0x0a, " to ", " from ", " bound "\n"
#define XP_MAX(to, from, least) ".insn r 0x33, 6, 2, " to ", " from ", " least "\n"
#define XP_MIN(to, from, most) ".insn r 0x33, 4, 2, " to ", " from ", " most "\n"
#define XP_ADD_SHIFT(acc, add, by) ".insn r 0x5b, 2, 0x20, " acc ", " add ", " by "\n"
#define XP_PACK(to, high, low) ".insn r 0x57, 0, 0x68, " to ", " high ", " low "\n"
#define XP_SHUFFLE(to, other, mask) ".insn r 0x57, 1, 0x64, " to ", " other ", %[" mask "]\n"

/* The number of the core that runs, of at most eight. */
static inline int xp_core(void) {
    int hart = 0;
    XP_INSN("csrr %0, mhartid" : "=r"(hart)); /* always the same: not volatile */
    return hart & 7;
}

/* What was written so far is in memory. */
static inline void xp_written(void) {
    XP_BLOCK("" : : : "memory");
}

/* funct7 of pv.sdotp on bytes, by the signs of rs1 and rs2. */
enum { XP_SDOTSP = 0x5c, XP_SDOTUP = 0x50, XP_SDOTUSP = 0x54 };

/* Four bytes at any address. */
static inline uint32_t xp_load(const void *p) {
    if (XPULP_INSN) {
        uint32_t value;
        XP_INSN("lw %0, %1" : "=r"(value) : "m"(*(const uint8_t (*)[4])p));
        return value;
    }
    uint32_t value;
    memcpy(&value, p, 4);
    return value;
}

static inline void xp_store(void *p, uint32_t value) {
    if (!XPULP_INSN) {
        memcpy(p, &value, 4);
        return;
    }
    XP_INSN("sw %1, %0" : "=m"(*(uint8_t (*)[4])p) : "r"(value));
}

/* The last `count` bytes (1 to 3) of a row of `depth` bytes as a word, zeros above them. */
static inline uint32_t xp_load_end(const void *row, int depth, int count) {
    const uint8_t *p = (const uint8_t *)row + depth - count;
    if (depth >= 4) return xp_load(p - 4 + count) >> (32 - 8 * count);
    uint32_t value = p[0];
    if (count > 1) value |= (uint32_t)p[1] << 8;
    if (count > 2) value |= (uint32_t)p[2] << 16;
    return value;
}

/* acc + a0*b0 + a1*b1 + a2*b2 + a3*b3 of the bytes of two words, each signed or not. */
#if defined(__pulp__) && !defined(XPULP_PORTABLE)
typedef int8_t xp_bytes __attribute__((vector_size(4)));
typedef uint8_t xp_ubytes __attribute__((vector_size(4)));
static inline int32_t xp_sdotsp(uint32_t a, uint32_t b, int32_t acc) {
    return (int32_t)__builtin_pulp_sdotsp4((xp_bytes)a, (xp_bytes)b, acc);
}

static inline int32_t xp_sdotup(uint32_t a, uint32_t b, int32_t acc) {
    return (int32_t)__builtin_pulp_sdotup4((xp_ubytes)a, (xp_ubytes)b, acc);
}

static inline int32_t xp_sdotusp(uint32_t a, uint32_t b, int32_t acc) {
    return (int32_t)__builtin_pulp_sdotusp4((xp_ubytes)a, (xp_bytes)b, acc);
}
#else
FOLDED int32_t xp_dot(uint32_t a, uint32_t b, int32_t acc, int funct7) {
    XP_INSN(".insn r 0x57, 1, %3, %0, %1, %2" : "+r"(acc) : "r"(a), "r"(b), "i"(funct7));
    for (int i = 0; i < 32 && !XPULP_INSN; i += 8) {
        const uint8_t x = a >> i & 255, w = b >> i & 255;
        acc += (funct7 == XP_SDOTSP ? (int8_t)x : x) * (funct7 == XP_SDOTUP ? w : (int8_t)w);
    }
    return acc;
}

static inline int32_t xp_sdotsp(uint32_t a, uint32_t b, int32_t acc) {
    return xp_dot(a, b, acc, XP_SDOTSP);
}

static inline int32_t xp_sdotup(uint32_t a, uint32_t b, int32_t acc) {
    return xp_dot(a, b, acc, XP_SDOTUP);
}

static inline int32_t xp_sdotusp(uint32_t a, uint32_t b, int32_t acc) {
    return xp_dot(a, b, acc, XP_SDOTUSP);
}
#endif

/* Every byte of a word, shifted by a constant: zeros come in. */
static inline __attribute__((always_inline)) uint32_t xp_shift_up4(uint32_t a, int by) {
    if (XPULP_INSN) {
        uint32_t result;
        if (by == 0) return a;
        XP_BLOCK(".insn r 0x57, 7, %2, %0, %1, x%3" : "=r"(result) : "r"(a), "i"(0x28 + (by & 1)), "i"(by >> 1));
        return result;
    }
    return a << by & (0xffu << by & 255) * 0x01010101u;
}

static inline __attribute__((always_inline)) uint32_t xp_shift_down4(uint32_t a, int by) {
    if (XPULP_INSN) {
        uint32_t result;
        if (by == 0) return a;
        XP_BLOCK(".insn r 0x57, 7, %2, %0, %1, x%3" : "=r"(result) : "r"(a), "i"(0x20 + (by & 1)), "i"(by >> 1));
        return result;
    }
    return a >> by & (0xffu >> by) * 0x01010101u;
}

/* a0*b0 + a1*b1 of the signed halves of two words. */
static inline int32_t xp_dotsp2(uint32_t a, uint32_t b) {
    if (XPULP_INSN) {
        int32_t sum;
        XP_INSN(".insn r 0x57, 0, 0x4c, %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b));
        return sum;
    }
    return (int32_t)(int16_t)(a & 0xffff) * (int16_t)(b & 0xffff) + (int32_t)(int16_t)(a >> 16) * (int16_t)(b >> 16);
}

static inline int32_t xp_max(int32_t a, int32_t b) {
    if (XPULP_INSN) {
        XP_INSN(".insn r 0x33, 6, 2, %0, %0, %1" : "+r"(a) : "r"(b));
        return a;
    }
    return a > b ? a : b;
}

static inline int32_t xp_min(int32_t a, int32_t b) {
    if (XPULP_INSN) {
        XP_INSN(".insn r 0x33, 4, 2, %0, %0, %1" : "+r"(a) : "r"(b));
        return a;
    }
    return a < b ? a : b;
}

/* The number of the highest bit that is set, counted from 0; `value` is not 0. */
static inline int xp_last_bit(uint32_t value) {
    if (XPULP_INSN) {
        int result;
        XP_INSN(".insn r 0x33, 1, 0x08, %0, %1, x0" : "=r"(result) : "r"(value));
        return result;
    }
    int result = 31;
    while (result && !(value >> result)) result--;
    return result;
}

/* funct7 of instructions that work on each pair of bytes: of signed and of unsigned ones, where these differ.
 * Comparisons give bytes of ones or of zeros. */
enum {
    XP_MIN4 = 0x10,
    XP_MIN4U = 0x14,
    XP_MAX4 = 0x18,
    XP_MAX4U = 0x1c,
    XP_OR4 = 0x2c,
    XP_XOR4 = 0x30,
    XP_AND4 = 0x34,
    XP_EQUAL4 = 0x02,
    XP_DIFFER4 = 0x06,
    XP_GREATER4 = 0x0a,
    XP_AT_LEAST4 = 0x0e,
    XP_LESS4 = 0x12,
    XP_AT_MOST4 = 0x16,
    XP_UNSIGNED_COMPARISON = 0x10, /* further than the signed one, but for equality */
};

/* The larger one of each pair of bytes. */
FOLDED uint32_t xp_larger(uint32_t a, uint32_t b, int funct7) {
    uint32_t result = 0;
    XP_INSN(".insn r 0x57, 1, %3, %0, %1, %2" : "=r"(result) : "r"(a), "r"(b), "i"(funct7));
    for (int i = 0; i < 32 && !XPULP_INSN; i += 8) {
        const uint8_t x = a >> i & 255, y = b >> i & 255;
        result |= (uint32_t)((funct7 == XP_MAX4 ? (int8_t)x > (int8_t)y : x > y) ? x : y) << i;
    }
    return result;
}

static inline uint32_t xp_max4(uint32_t a, uint32_t b) {
    return xp_larger(a, b, XP_MAX4);
}

static inline uint32_t xp_max4u(uint32_t a, uint32_t b) {
    return xp_larger(a, b, XP_MAX4U);
}

/* a in [-bound - 1, bound]. */
static inline int32_t xp_clip(int32_t a, int32_t bound) {
    if (XPULP_INSN) {
        int32_t result;
        XP_INSN(".insn r 0x33, 5, 0x0a, %0, %1, %2" : "=r"(result) : "r"(a), "r"(bound));
        return result;
    }
    return xp_max(-bound - 1, xp_min(bound, a));
}

/* a in [0, bound]. */
static inline int32_t xp_clipu(int32_t a, int32_t bound) {
    if (XPULP_INSN) {
        int32_t result;
        XP_INSN(".insn r 0x33, 6, 0x0a, %0, %1, %2" : "=r"(result) : "r"(a), "r"(bound));
        return result;
    }
    return xp_max(0, xp_min(bound, a));
}

/* (a + b) >> shift; the sum stays in 32 bits, shift is 0 to 31. */
static inline int32_t xp_add_shift(int32_t a, int32_t b, int shift) {
    if (XPULP_INSN) {
        XP_INSN(".insn r 0x5b, 2, 0x20, %0, %1, %2" : "+r"(a) : "r"(b), "r"(shift));
        return a;
    }
    return (a + b) >> shift;
}

/* (a + b) / 2^shift, rounded; the sum stays in 32 bits, shift is 1 to 31. */
static inline int32_t xp_add_round(int32_t a, int32_t b, int shift) {
    if (XPULP_INSN) {
        XP_INSN(".insn r 0x5b, 6, 0x20, %0, %1, %2" : "+r"(a) : "r"(b), "r"(shift));
        return a;
    }
    return (a + b + (1 << (shift - 1))) >> shift;
}

/* x / 2^shift, rounded, of a constant shift from 1 to 31. */
FOLDED int32_t xp_round(int32_t x, int shift) {
    int32_t rounded = 0;
    XP_INSN(".insn r 0x5b, 6, %2, %0, %1, x0" : "=r"(rounded) : "r"(x), "i"(shift));
    return XPULP_INSN ? rounded : xp_add_round(x, 0, shift);
}

/* A value of a table that stays as it is, by its number, and above it the next one. */
static inline uint32_t xp_halves_at(const int16_t *table, int32_t at) {
    if (XPULP_INSN) {
        uint32_t value;
        XP_INSN(".insn r 0x03, 7, 0x10, %0, %1, %2" : "=r"(value) : "r"(table), "r"(at * 2),
                "m"(*(const int16_t (*)[2])(table + at)));
        return value;
    }
    return xp_load(table + at);
}

/* acc + a*b in 32 bits. */
static inline int32_t xp_mac(int32_t acc, int32_t a, int32_t b) {
    if (XPULP_INSN) {
        XP_INSN(".insn r 0x33, 0, 0x21, %0, %1, %2" : "+r"(acc) : "r"(a), "r"(b));
        return acc;
    }
    return acc + a * b;
}

/* The upper half of a product. */
static inline int32_t xp_mulh(int32_t a, int32_t b) {
    return (int32_t)((int64_t)a * b >> 32);
}

/* Byte i of the result is byte `mask byte i` of the eight bytes a (0 to 3) and b (4 to 7). */
static inline uint32_t xp_shuffle2(uint32_t a, uint32_t b, uint32_t mask) {
    if (XPULP_INSN) {
        XP_INSN(".insn r 0x57, 1, 0x64, %0, %1, %2" : "+r"(a) : "r"(b), "r"(mask));
        return a;
    }
    uint32_t result = 0;
    for (int i = 0; i < 32; i += 8) {
        const uint32_t from = mask >> i & 7;
        result |= ((from < 4 ? a : b) >> 8 * (from & 3) & 255) << i;
    }
    return result;
}

/* The lower halves of two words: of `high` above that of `low`. */
static inline uint32_t xp_pack(uint32_t high, uint32_t low) {
    if (XPULP_INSN) {
        uint32_t result;
        XP_INSN(".insn r 0x57, 0, 0x68, %0, %1, %2" : "=r"(result) : "r"(high), "r"(low));
        return result;
    }
    return high << 16 | (low & 0xffff);
}

/* Two words at any address, the second one stored last. */
static inline void xp_store_2(void *low, uint32_t first, void *high, uint32_t second) {
    XP_BLOCK("sw %1, 0(%0)\nsw %3, 0(%2)" : : "r"(low), "r"(first), "r"(high), "r"(second) : "memory");
}

/* Copies `count` bytes, between any addresses. The last eight may begin among those before them. */
static inline void xp_copy(void *to, const void *from, int count) {
    if (!XPULP_INSN) {
        memcpy(to, from, (size_t)count);
        return;
    }
    uint8_t *d = to;
    const uint8_t *s = from;
    const int pairs = count >> 3;
    if (pairs) {
        XP_BLOCK(
            ".option push\n.option norvc\n"
            ".insn i 0x7b, 4, x0, %[n], 8\n"
            ".insn i 0x0b, 2, t0, %[s], 4\n"
            ".insn i 0x0b, 2, t1, %[s], 4\n"
            ".insn s 0x2b, 2, t0, 4(%[d])\n"
            ".insn s 0x2b, 2, t1, 4(%[d])\n"
            ".option pop\n" : [d] "+r"(d),
            [s] "+r"(s) : [n] "r"(pairs) : "t0", "t1", "memory");
        if (count & 7) {
            const int back = 8 - (count & 7);
            xp_store_2(d - back, xp_load(s - back), d - back + 4, xp_load(s - back + 4));
        }
    } else if (count >= 4) {
        xp_store_2(d, xp_load(s), d + count - 4, xp_load(s + count - 4));
    } else {
        for (int i = 0; i < count; i++) d[i] = s[i];
    }
}

/* Fills `count` bytes. */
static inline void xp_fill(void *to, uint8_t value, int count) {
    if (!XPULP_INSN) {
        memset(to, value, (size_t)count);
        return;
    }
    uint8_t *d = to;
    const uint32_t word = value * 0x01010101u;
    const int pairs = count >> 3;
    if (pairs) {
        XP_BLOCK(
            ".option push\n.option norvc\n"
            ".insn i 0x7b, 4, x0, %[n], 4\n"
            ".insn s 0x2b, 2, %[word], 4(%[d])\n"
            ".insn s 0x2b, 2, %[word], 4(%[d])\n"
            ".option pop\n" : [d] "+r"(d) : [n] "r"(pairs),
            [word] "r"(word) : "memory");
        if (count & 7) xp_store_2(d + (count & 7) - 8, word, d + (count & 7) - 4, word);
    } else if (count >= 4) {
        xp_store_2(d, word, d + count - 4, word);
    } else {
        for (int i = 0; i < count; i++) d[i] = value;
    }
}

#endif
