/* The Xpulp v2 instructions that the kernels use, with three bodies: builtins of the PULP compilers, `.insn` for stock
 * RISC-V compilers, and portable C, which says what they do.
 *
 * XPULP_INSN is defined where assembly may be used: hardware loops and post-increment loads have no C. The body on
 * builtins needs a PULP compiler, which finds both by itself; it is written from that compiler's documentation and was
 * never built by the project's tests. XPULP_PORTABLE selects the portable body on any machine.
 */
#ifndef DEEPLOY_XPULP_H
#define DEEPLOY_XPULP_H

#include <stdint.h>
#include <string.h>

#if defined(XPULP_PORTABLE)
#elif defined(__pulp__)
#define XPULP_BUILTIN
#elif defined(__riscv) && __riscv_xlen == 32
#define XPULP_INSN
#endif

/* Not -O3: a kernel's code is mostly run with cold instruction caches, 16 bytes of which take as long as 20
 * instructions; the loops that count are assembly. */
#if defined(XPULP_INSN) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

/* Keeps the compiler from unrolling a loop that it knows to be short: a core holds 512 bytes of instructions. */
#ifdef __GNUC__
#define XP_UNKNOWN(count) __asm__("" : "+r"(count))
#else
#define XP_UNKNOWN(count) (void)0
#endif

/* The number of the core that runs, of at most eight. */
#ifdef XPULP_INSN
static inline int xp_core(void) {
    int hart;
    __asm__("csrr %0, mhartid" : "=r"(hart)); /* always the same: not volatile */
    return hart & 7;
}
#endif

/* What was written so far is in memory. */
#ifdef XPULP_INSN
#define XP_WRITTEN() __asm__ volatile("" ::: "memory")
#else
#define XP_WRITTEN() (void)0
#endif

/* Functions that keep their registers to themselves. */
#ifdef __GNUC__
#define OUT_OF_LINE static __attribute__((noinline, unused))
#else
#define OUT_OF_LINE static inline
#endif

/* funct7 of pv.sdotp on bytes, by the signs of rs1 and rs2. */
#define XP_SDOTSP 0x5c
#define XP_SDOTUP 0x50
#define XP_SDOTUSP 0x54

/* Four bytes at any address. */
static inline uint32_t xp_load(const void *p) {
#ifdef XPULP_INSN
    uint32_t value;
    __asm__("lw %0, %1" : "=r"(value) : "m"(*(const uint8_t (*)[4])p));
    return value;
#else
    uint32_t value;
    memcpy(&value, p, 4);
    return value;
#endif
}

static inline void xp_store(void *p, uint32_t value) {
#ifdef XPULP_INSN
    __asm__("sw %1, %0" : "=m"(*(uint8_t (*)[4])p) : "r"(value));
#else
    memcpy(p, &value, 4);
#endif
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
#define XP_DOT(name, builtin, funct7, a_type, b_type, builtin_a, builtin_b) \
    static inline int32_t name(uint32_t a, uint32_t b, int32_t acc) {       \
        XP_DOT_BODY(builtin, funct7, a_type, b_type, builtin_a, builtin_b)  \
    }
#if defined(XPULP_BUILTIN)
typedef int8_t xp_bytes __attribute__((vector_size(4)));
typedef uint8_t xp_ubytes __attribute__((vector_size(4)));
#define XP_DOT_BODY(builtin, funct7, a_type, b_type, builtin_a, builtin_b) \
    return (int32_t)builtin((builtin_a)a, (builtin_b)b, acc);
#elif defined(XPULP_INSN)
#define XP_DOT_BODY(builtin, funct7, a_type, b_type, builtin_a, builtin_b)                \
    __asm__(".insn r 0x57, 1, %3, %0, %1, %2" : "+r"(acc) : "r"(a), "r"(b), "i"(funct7)); \
    return acc;
#else
#define XP_DOT_BODY(builtin, funct7, a_type, b_type, builtin_a, builtin_b)                                    \
    for (int i = 0; i < 32; i += 8) acc += (int32_t)(a_type)(a >> i & 255) * (int32_t)(b_type)(b >> i & 255); \
    return acc;
#endif
XP_DOT(xp_sdotsp, __builtin_pulp_sdotsp4, XP_SDOTSP, int8_t, int8_t, xp_bytes, xp_bytes)
XP_DOT(xp_sdotup, __builtin_pulp_sdotup4, XP_SDOTUP, uint8_t, uint8_t, xp_ubytes, xp_ubytes)
XP_DOT(xp_sdotusp, __builtin_pulp_sdotusp4, XP_SDOTUSP, uint8_t, int8_t, xp_ubytes, xp_bytes)
#undef XP_DOT
#undef XP_DOT_BODY

/* Every byte of a word, shifted by a constant: zeros come in. */
static inline __attribute__((always_inline)) uint32_t xp_shift_up4(uint32_t a, int by) {
#ifdef XPULP_INSN
    uint32_t result;
    if (by == 0) return a;
    __asm__ volatile(".insn r 0x57, 7, %2, %0, %1, x%3" : "=r"(result) : "r"(a), "i"(0x28 + (by & 1)), "i"(by >> 1));
    return result;
#else
    return a << by & (0xffu << by & 255) * 0x01010101u;
#endif
}

static inline __attribute__((always_inline)) uint32_t xp_shift_down4(uint32_t a, int by) {
#ifdef XPULP_INSN
    uint32_t result;
    if (by == 0) return a;
    __asm__ volatile(".insn r 0x57, 7, %2, %0, %1, x%3" : "=r"(result) : "r"(a), "i"(0x20 + (by & 1)), "i"(by >> 1));
    return result;
#else
    return a >> by & (0xffu >> by) * 0x01010101u;
#endif
}

/* a0*b0 + a1*b1 of the signed halves of two words. */
static inline int32_t xp_dotsp2(uint32_t a, uint32_t b) {
#ifdef XPULP_INSN
    int32_t sum;
    __asm__(".insn r 0x57, 0, 0x4c, %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
#else
    return (int32_t)(int16_t)(a & 0xffff) * (int16_t)(b & 0xffff) + (int32_t)(int16_t)(a >> 16) * (int16_t)(b >> 16);
#endif
}

static inline int32_t xp_max(int32_t a, int32_t b) {
#ifdef XPULP_INSN
    __asm__(".insn r 0x33, 6, 2, %0, %0, %1" : "+r"(a) : "r"(b));
    return a;
#else
    return a > b ? a : b;
#endif
}

static inline int32_t xp_min(int32_t a, int32_t b) {
#ifdef XPULP_INSN
    __asm__(".insn r 0x33, 4, 2, %0, %0, %1" : "+r"(a) : "r"(b));
    return a;
#else
    return a < b ? a : b;
#endif
}

/* The number of the highest bit that is set, counted from 0; `value` is not 0. */
static inline int xp_last_bit(uint32_t value) {
#ifdef XPULP_INSN
    int result;
    __asm__(".insn r 0x33, 1, 0x08, %0, %1, x0" : "=r"(result) : "r"(value));
    return result;
#else
    int result = 31;
    while (result && !(value >> result)) result--;
    return result;
#endif
}

/* funct7 of instructions that work on each pair of bytes: of signed and of unsigned ones, where these differ.
 * Comparisons give bytes of ones or of zeros. */
#define XP_MIN4 0x10
#define XP_MIN4U 0x14
#define XP_MAX4 0x18
#define XP_MAX4U 0x1c
#define XP_OR4 0x2c
#define XP_XOR4 0x30
#define XP_AND4 0x34
#define XP_EQUAL4 0x02
#define XP_DIFFER4 0x06
#define XP_GREATER4 0x0a
#define XP_AT_LEAST4 0x0e
#define XP_LESS4 0x12
#define XP_AT_MOST4 0x16
#define XP_UNSIGNED_COMPARISON 0x10 /* further than the signed one, but for equality */

/* The larger one of each pair of bytes. */
#ifdef XPULP_INSN
#define XP_MAX_BODY(funct7, type)                                               \
    __asm__(".insn r 0x57, 1, %2, %0, %0, %1" : "+r"(a) : "r"(b), "i"(funct7)); \
    return a;
#else
#define XP_MAX_BODY(funct7, type)                                      \
    uint32_t result = 0;                                               \
    for (int i = 0; i < 32; i += 8) {                                  \
        const type x = (type)(a >> i & 255), y = (type)(b >> i & 255); \
        result |= (uint32_t)(uint8_t)(x > y ? x : y) << i;             \
    }                                                                  \
    return result;
#endif
static inline uint32_t xp_max4(uint32_t a, uint32_t b) {
    XP_MAX_BODY(XP_MAX4, int8_t)
}
static inline uint32_t xp_max4u(uint32_t a, uint32_t b) {
    XP_MAX_BODY(XP_MAX4U, uint8_t)
}
#undef XP_MAX_BODY

/* a in [-bound - 1, bound]. */
static inline int32_t xp_clip(int32_t a, int32_t bound) {
#ifdef XPULP_INSN
    int32_t result;
    __asm__(".insn r 0x33, 5, 0x0a, %0, %1, %2" : "=r"(result) : "r"(a), "r"(bound));
    return result;
#else
    return xp_max(-bound - 1, xp_min(bound, a));
#endif
}

/* a in [0, bound]. */
static inline int32_t xp_clipu(int32_t a, int32_t bound) {
#ifdef XPULP_INSN
    int32_t result;
    __asm__(".insn r 0x33, 6, 0x0a, %0, %1, %2" : "=r"(result) : "r"(a), "r"(bound));
    return result;
#else
    return xp_max(0, xp_min(bound, a));
#endif
}

/* (a + b) >> shift; the sum stays in 32 bits, shift is 0 to 31. */
static inline int32_t xp_add_shift(int32_t a, int32_t b, int shift) {
#ifdef XPULP_INSN
    __asm__(".insn r 0x5b, 2, 0x20, %0, %1, %2" : "+r"(a) : "r"(b), "r"(shift));
    return a;
#else
    return (a + b) >> shift;
#endif
}

/* (a + b) / 2^shift, rounded; the sum stays in 32 bits, shift is 1 to 31. */
static inline int32_t xp_add_round(int32_t a, int32_t b, int shift) {
#ifdef XPULP_INSN
    __asm__(".insn r 0x5b, 6, 0x20, %0, %1, %2" : "+r"(a) : "r"(b), "r"(shift));
    return a;
#else
    return (a + b + (1 << (shift - 1))) >> shift;
#endif
}

/* x / 2^shift, rounded, of a constant shift from 1 to 31. */
#ifdef XPULP_INSN
#define xp_round(x, shift)                                                                \
    __extension__({                                                                       \
        int32_t rounded_;                                                                 \
        __asm__(".insn r 0x5b, 6, %2, %0, %1, x0" : "=r"(rounded_) : "r"(x), "i"(shift)); \
        rounded_;                                                                         \
    })
#else
#define xp_round(x, shift) xp_add_round(x, 0, shift)
#endif

/* A value of a table that stays as it is, by its number, and above it the next one. */
static inline uint32_t xp_halves_at(const int16_t *table, int32_t at) {
#ifdef XPULP_INSN
    uint32_t value;
    __asm__(".insn r 0x03, 7, 0x10, %0, %1, %2"
            : "=r"(value)
            : "r"(table), "r"(at * 2), "m"(*(const int16_t (*)[2])(table + at)));
    return value;
#else
    return xp_load(table + at);
#endif
}

/* acc + a*b in 32 bits. */
static inline int32_t xp_mac(int32_t acc, int32_t a, int32_t b) {
#ifdef XPULP_INSN
    __asm__(".insn r 0x33, 0, 0x21, %0, %1, %2" : "+r"(acc) : "r"(a), "r"(b));
    return acc;
#else
    return acc + a * b;
#endif
}

/* The upper half of a product. */
static inline int32_t xp_mulh(int32_t a, int32_t b) {
    return (int32_t)((int64_t)a * b >> 32);
}

/* Byte i of the result is byte `mask byte i` of the eight bytes a (0 to 3) and b (4 to 7). */
static inline uint32_t xp_shuffle2(uint32_t a, uint32_t b, uint32_t mask) {
#ifdef XPULP_INSN
    __asm__(".insn r 0x57, 1, 0x64, %0, %1, %2" : "+r"(a) : "r"(b), "r"(mask));
    return a;
#else
    uint32_t result = 0;
    for (int i = 0; i < 32; i += 8) {
        const uint32_t from = mask >> i & 7;
        result |= ((from < 4 ? a : b) >> 8 * (from & 3) & 255) << i;
    }
    return result;
#endif
}

/* The lower halves of two words: of `high` above that of `low`. */
static inline uint32_t xp_pack(uint32_t high, uint32_t low) {
#ifdef XPULP_INSN
    uint32_t result;
    __asm__(".insn r 0x57, 0, 0x68, %0, %1, %2" : "=r"(result) : "r"(high), "r"(low));
    return result;
#else
    return high << 16 | (low & 0xffff);
#endif
}

/* Two words at any address. */
#ifdef XPULP_INSN
static inline void xp_store_2(void *low, uint32_t first, void *high, uint32_t second) {
    __asm__ volatile("sw %1, 0(%0)\nsw %3, 0(%2)" : : "r"(low), "r"(first), "r"(high), "r"(second) : "memory");
}
#endif

/* Copies `count` bytes, between any addresses. The last eight may begin among those before them. */
static inline void xp_copy(void *to, const void *from, int count) {
#ifdef XPULP_INSN
    uint8_t *d = to;
    const uint8_t *s = from;
    const int pairs = count >> 3;
    if (pairs) {
        __asm__ volatile(
            ".option push\n.option norvc\n"
            ".insn i 0x7b, 4, x0, %[n], 8\n"
            ".insn i 0x0b, 2, t0, %[s], 4\n"
            ".insn i 0x0b, 2, t1, %[s], 4\n"
            ".insn s 0x2b, 2, t0, 4(%[d])\n"
            ".insn s 0x2b, 2, t1, 4(%[d])\n"
            ".option pop\n"
            : [d] "+r"(d), [s] "+r"(s)
            : [n] "r"(pairs)
            : "t0", "t1", "memory");
        if (count & 7) {
            const int back = 8 - (count & 7);
            xp_store_2(d - back, xp_load(s - back), d - back + 4, xp_load(s - back + 4));
        }
    } else if (count >= 4) {
        xp_store_2(d, xp_load(s), d + count - 4, xp_load(s + count - 4));
    } else {
        for (int i = 0; i < count; i++) d[i] = s[i];
    }
#else
    memcpy(to, from, (size_t)count);
#endif
}

/* Fills `count` bytes. */
static inline void xp_fill(void *to, uint8_t value, int count) {
#ifdef XPULP_INSN
    uint8_t *d = to;
    const uint32_t word = value * 0x01010101u;
    const int pairs = count >> 3;
    if (pairs) {
        __asm__ volatile(
            ".option push\n.option norvc\n"
            ".insn i 0x7b, 4, x0, %[n], 4\n"
            ".insn s 0x2b, 2, %[word], 4(%[d])\n"
            ".insn s 0x2b, 2, %[word], 4(%[d])\n"
            ".option pop\n"
            : [d] "+r"(d)
            : [n] "r"(pairs), [word] "r"(word)
            : "memory");
        if (count & 7) xp_store_2(d + (count & 7) - 8, word, d + (count & 7) - 4, word);
    } else if (count >= 4) {
        xp_store_2(d, word, d + count - 4, word);
    } else {
        for (int i = 0; i < count; i++) d[i] = value;
    }
#else
    memset(to, value, (size_t)count);
#endif
}

#endif
