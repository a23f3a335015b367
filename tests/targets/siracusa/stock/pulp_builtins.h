/* What headers of the PULP SDK take from the PULP compiler, for a stock one. */
#ifndef PULP_BUILTINS_H
#define PULP_BUILTINS_H

#define __builtin_pulp_binsert(into, others, value, mask, offset) \
    (((into) & (others)) | (((unsigned)(value) << (offset)) & (mask)))
#define __builtin_pulp_bextractu(value, size, offset) (((unsigned)(value) >> (offset)) & ((1u << (size)) - 1u))
#define __builtin_pulp_bextract(value, size, offset) (((int)(value) << (32 - (size) - (offset))) >> (32 - (size)))
#define __builtin_pulp_spr_read(number)                               \
    ({                                                                \
        unsigned value_;                                              \
        __asm__ volatile("csrr %0, %1" : "=r"(value_) : "i"(number)); \
        value_;                                                       \
    })
#define __builtin_pulp_spr_write(number, value) __asm__ volatile("csrw %0, %1" : : "i"(number), "r"(value))
#define IP_WRITE_PTR(base, offset, value) (*(volatile unsigned *)((base) + (offset)) = (unsigned)(value))

static inline int __builtin_pulp_ClusterId(void) {
    return (int)(__builtin_pulp_spr_read(0xf14) >> 5) & 0x3f;
}

#endif
