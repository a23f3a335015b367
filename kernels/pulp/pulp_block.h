/* Blocks of four rows by four filters with their epilogues in assembly: beside a block's sixteen accumulators a
 * compiler has too few registers left to get from one to the next. Included by pulp_product.h, where there is a form
 * for it. */
#ifndef DEEPLOY_PULP_BLOCK_H
#define DEEPLOY_PULP_BLOCK_H

#ifdef REQUANT_ONE
typedef int32_t group_factors;
#define LOWER_FACTOR(mul) ((int32_t)(mul))
#define UPPER_FACTOR(mul) ((int32_t)((int64_t)(mul) >> 32))
#else
typedef factors group_factors;
#define LOWER_FACTOR(mul) (mul)
#define UPPER_FACTOR(mul) 0
#endif

/* Groups of four filters, and what the block that is next works on. */
struct groups {
    int count, words; /* groups; words of a row */
    const X_T *x;     /* four rows, w_step apart, like filters */
    const W_T *w;
    int w_step, w_back,
        w_group; /* from row to row, from the last one to the next word of the first, to the next group */
    const int32_t *bias;
    group_factors mul;
    summands add;
    Y_T *y;
    int y_step, shift, form; /* what the form shifts by: left or bits */
    int32_t limit, low, high;
    int32_t upper;   /* of one factor for all */
    uintptr_t table; /* where the result zero would have its entry */
};

/* The assembly finds them by their offsets. */
#define AT(field, offset) _Static_assert(offsetof(struct groups, field) == (offset), "where the assembly looks for it")
AT(count, 0);
AT(words, 4);
AT(x, 8);
AT(w, 12);
AT(w_step, 16);
AT(w_back, 20);
AT(w_group, 24);
AT(bias, 28);
AT(mul, 32);
AT(add, 36);
AT(y, 40);
AT(y_step, 44);
AT(shift, 48);
AT(form, 52);
AT(limit, 56);
AT(low, 60);
AT(high, 64);
AT(upper, 68);
AT(table, 72);
#undef AT
#define GET(to, offset) "lw " to ", " #offset "(%[g])\n"
#define PUT(from, offset) "sw " from ", " #offset "(%[g])\n"
#define ADVANCE(offset, by) GET("t0", offset) "addi t0, t0, " #by "\n" PUT("t0", offset)
#define EACH(action) action("0") action("1") action("2") action("3")

#ifdef EPILOGUE_BIAS
#define FIRST(j) \
    "lw %[a" j "], 4*" j "(t0)\nmv %[b" j "], %[a" j "]\nmv %[c" j "], %[a" j "]\nmv %[d" j "], %[a" j "]\n"
#define FIRSTS GET("t0", 28) EACH(FIRST)
#define NEXT_BIAS ADVANCE(28, 16)
#else
#define FIRST(j) "li %[a" j "], 0\nli %[b" j "], 0\nli %[c" j "], 0\nli %[d" j "], 0\n"
#define FIRSTS EACH(FIRST)
#define NEXT_BIAS
#endif

/* A group's results stay in the accumulators' registers. t0 and t1 hold the factor, or its lower part, and what is
 * added, t2 the shift, t3 the factor's upper part, t4 the upper limit of y, t5 and t6 what the form needs; x and step
 * are free until then. */
#define OF_ROWS(action, j) action("a" j) action("b" j) action("c" j) action("d" j)
#ifdef REQUANT_CLIPPED
#define LIMIT(acc) ".insn r 0x33, 5, 0x0a, %[" acc "], %[" acc "], t6\n"
#define LIMITED(j) OF_ROWS(LIMIT, j)
#define SIXTH GET("t6", 56)
#else
#define LIMITED(j)
#define SIXTH LEAST("t6")
#endif
#ifdef CLIP_WHOLE
#define RANGE_OF(acc, sum) ".insn r 0x33, %[clip], 0x0a, %[" acc "], %[" sum "], t4\n"
#define LEAST(to)
#else
#define RANGE_OF(acc, sum) \
    ".insn r 0x33, 6, 2, %[" acc "], %[" sum "], " LOW "\n.insn r 0x33, 4, 2, %[" acc "], %[" acc "], t4\n"
#define LEAST(to) GET(to, 60)
#endif
#define RANGE(acc) RANGE_OF(acc, acc)
#define SUM(acc) ".insn r 0x5b, 2, 0x20, %[" acc "], t1, t2\n"
#if defined(REQUANT_NARROW)
#define SCALE(acc) "mul %[" acc "], %[" acc "], t0\n"
#define SCALED(j) OF_ROWS(SCALE, j) OF_ROWS(SUM, j) OF_ROWS(RANGE, j)
#define FIFTH LEAST("t5")
#define LOW "t5"
#elif defined(REQUANT_SPLIT)
#define LOWER(acc, sum) "mul %[" sum "], %[" acc "], t0\n"
#define RIGHT(sum) "sra %[" sum "], %[" sum "], t5\n"
#define UPPER(acc, sum) ".insn r 0x33, 0, 0x21, %[" sum "], %[" acc "], t3\n"
#define BOTH(a, b) LOWER(a, "x") LOWER(b, "step") RIGHT("x") RIGHT("step") UPPER(a, "x") UPPER(b, "step") ENDED(a, b)
#define ENDED(a, b) SUM("x") SUM("step") RANGE_OF(a, "x") RANGE_OF(b, "step")
#define SCALED(j) BOTH("a" j, "b" j) BOTH("c" j, "d" j)
#define FIFTH GET("t5", 52)
#define LOW "t6"
#else
#define SHIFT(acc) "sll %[" acc "], %[" acc "], t5\n"
#define SCALE(acc) "mulh %[" acc "], %[" acc "], t0\n"
#define SCALED(j) OF_ROWS(SHIFT, j) OF_ROWS(SCALE, j) OF_ROWS(SUM, j) OF_ROWS(RANGE, j)
#define FIFTH GET("t5", 52)
#define LOW "t6"
#endif
#ifdef REQUANT_ONE
#define FACTORS
#define LOWER_PART GET("t0", 32)
#define UPPER_PART GET("t3", 68)
#define SUMMAND GET("t1", 36)
#define NEXT_FACTORS
#else
#define FACTORS GET("%[w]", 32) GET("%[back]", 36)
#define LOWER_PART LOAD("t0", "w")
#define UPPER_PART LOAD("t3", "w")
#define SUMMAND LOAD("t1", "back")
#define NEXT_FACTORS PUT("%[w]", 32) PUT("%[back]", 36)
#endif
#ifdef REQUANT_SPLIT
#define FACTOR LOWER_PART UPPER_PART SUMMAND
#else
#define FACTOR LOWER_PART SUMMAND
#endif
#define FINISHES(j) FACTOR LIMITED(j) SCALED(j)
#ifdef EPILOGUE_LOOKUP
#define FIND(acc) ".insn r 0x03, 7, 0x20, %[" acc "], t0, %[" acc "]\n"
#define FOUND GET("t0", 72) OF_ROWS(FIND, "0") OF_ROWS(FIND, "1") OF_ROWS(FIND, "2") OF_ROWS(FIND, "3")
#else
#define FOUND
#endif
/* The results of a row as a word, whose address goes to the next row. */
#define STORE(row)                                                                                             \
    ".insn r 0x57, 1, 0x70, %[" row "0], %[" row "1], %[" row "0]\n.insn r 0x57, 1, 0x6c, %[" row "0], %[" row \
    "3], %[" row "2]\n.insn r 0x2b, 6, 0, %[step], %[x], %[" row "0]\n"

/* All groups. The address of y, its step and those of the factors take the registers of x, w and their steps. */
OUT_OF_LINE void groups_of_4(struct groups *g) {
    const X_T *x;
    const W_T *w;
    int step, back;
    int32_t a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3;
    __asm__ volatile("1:\n" FIRSTS GET("t0", 4) GET("%[x]", 8) GET("%[w]", 12) GET("%[step]", 16) GET("%[back]", 20)
                         BEGIN LOOP("t0", 24) WALK("t0", "x", "step") WALK("t1", "x", "step") WALK("t2", "x", "step")
                             WALK("t3", "x", "back") WALK("t4", "w", "step") WALK("t5", "w", "step") DOTS("0", "t4")
                                 WALK("t4", "w", "step") DOTS("1", "t5") WALK("t5", "w", "back") DOTS("2", "t4")
                                     DOTS("3", "t5") END GET("t2", 48) FIFTH SIXTH GET("t4", 64) FACTORS EACH(FINISHES)
                                         FOUND GET("%[x]", 40) GET("%[step]", 44) STORE("a") STORE("b") STORE("c")
                                             STORE("d") NEXT_FACTORS NEXT_BIAS GET("t1", 40) GET("t2", 12) GET("t3", 24)
                                                 GET("t0", 0) "addi t1, t1, 4\nadd t2, t2, t3\naddi t0, t0, -1\n" PUT(
                                                     "t1", 40) PUT("t2", 12) PUT("t0", 0) "bnez t0, 1b\n"
                     : [a0] "=&r"(a0), [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "=&r"(b0), [b1] "=&r"(b1),
                       [b2] "=&r"(b2), [b3] "=&r"(b3), [c0] "=&r"(c0), [c1] "=&r"(c1), [c2] "=&r"(c2), [c3] "=&r"(c3),
                       [d0] "=&r"(d0), [d1] "=&r"(d1), [d2] "=&r"(d2), [d3] "=&r"(d3), [x] "=&r"(x), [w] "=&r"(w),
                       [step] "=&r"(step), [back] "=&r"(back)
                     : [g] "r"(g), [sdot] "i"(SDOT), [clip] "i"((Y_T)-1 < 0 ? 5 : 6)
                     : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "memory");
}
#undef GET
#undef PUT
#undef ADVANCE
#undef EACH
#undef FIRST
#undef FIRSTS
#undef NEXT_BIAS
#undef OF_ROWS
#undef LIMIT
#undef LIMITED
#undef SIXTH
#undef RANGE
#undef RANGE_OF
#undef LOWER
#undef RIGHT
#undef UPPER
#undef BOTH
#undef ENDED
#undef LOWER_PART
#undef UPPER_PART
#undef SUMMAND
#undef LEAST
#undef SUM
#undef SHIFT
#undef SCALE
#undef SCALED
#undef FIFTH
#undef LOW
#undef FACTORS
#undef FACTOR
#undef NEXT_FACTORS
#undef FINISHES
#undef FIND
#undef FOUND
#undef STORE

/* A multiple of four rows that lie as far apart as filters; at least four filters. A last group of fewer than four is
 * completed by filters before it. */
OUT_OF_LINE void rows_by_groups(const struct pulp_product *p, struct rows r, const W_T *filters, int channel) {
    const int again = -p->filters & 3;
    const struct operands s = operands_at(&p->epilogue, &p->requantisation, channel);
    struct groups g = {.words = p->depth >> 2, .w_step = p->w_row, .w_back = 4 - 3 * p->w_row, .w_group = 4 * p->w_row};
    g.y_step = r.y_step, g.shift = p->requantisation.shift, g.upper = UPPER_FACTOR(s.mul);
#ifdef REQUANT_SPLIT
    g.form = p->requantisation.bits;
#else
    g.form = p->requantisation.left;
#endif
    g.table = (uintptr_t)p->epilogue.table - (uintptr_t)(intptr_t)p->epilogue.low;
    g.limit = p->requantisation.limit, g.low = p->epilogue.low, g.high = p->epilogue.high;
    for (; r.count > 0; r.count -= 4, r.x += 4 * p->w_row, r.y += 4 * r.y_step) {
        g.count = p->filters >> 2, g.x = r.x, g.w = filters, g.y = r.y;
        g.bias = s.bias, g.mul = LOWER_FACTOR(s.mul), g.add = s.add;
        groups_of_4(&g);
        if (again) {
            g.count = 1, g.w -= again * p->w_row, g.y -= again;
#ifndef REQUANT_ONE
            g.mul -= again, g.add -= again;
#endif
#ifdef EPILOGUE_BIAS
            g.bias -= again;
#endif
            groups_of_4(&g);
        }
    }
}

#endif
