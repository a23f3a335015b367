/* Blocks of four rows by four filters of bytes with their epilogues in assembly: beside a block's sixteen accumulators
 * a compiler has too few registers left to get from one to the next. Included by pulp_bytes.h. */
#ifndef DEEPLOY_PULP_BLOCK_H
#define DEEPLOY_PULP_BLOCK_H

/* There is assembly for the form of the requantisation. */
enum { HAS_BLOCKS = IN_ASSEMBLY && BY_FOUR && !IS_PARTIAL && sizeof(Y_T) == 1 };

/* Blocks of four neighbouring filters, row after row of x, and what the block that is next works on. */
struct blocks {
    int count, words; /* blocks; words of a run */
    const X_T *x;     /* four rows, x_step apart */
    const W_T *w;
    int x_step, x_back, w_step, w_back; /* from row to row, from the last one to the next word of the first */
    int x_next;                         /* to the next four rows */
    int runs, skip;                     /* of a row of x, and from the end of one to the next */
    const int32_t *bias, *sums;
    uintptr_t mul, add; /* where those of the filters lie, or with REQUANT_ONE the one of all */
    Y_T *y;
    int y_step, shift, form; /* what the form shifts by: left or bits */
    int32_t limit, low, high;
    int32_t upper;   /* of one factor for all */
    uintptr_t table; /* where the result zero would have its entry */
};

/* The assembly finds them by their offsets. */
#define AT(field, offset) \
    _Static_assert(!XPULP_INSN || offsetof(struct blocks, field) == (offset), "where the assembly looks for it")
AT(count, 0);
AT(words, 4);
AT(x, 8);
AT(w, 12);
AT(x_step, 16);
AT(x_back, 20);
AT(w_step, 24);
AT(w_back, 28);
AT(x_next, 32);
AT(runs, 36);
AT(skip, 40);
AT(bias, 44);
AT(sums, 48);
AT(mul, 52);
AT(add, 56);
AT(y, 60);
AT(y_step, 64);
AT(shift, 68);
AT(form, 72);
AT(limit, 76);
AT(low, 80);
AT(high, 84);
AT(upper, 88);
AT(table, 92);
#define GET(to, offset) "lw " to ", " #offset "(%[g])\n"
#define PUT(from, offset) "sw " from ", " #offset "(%[g])\n"
#define EACH(action) action("0") action("1") action("2") action("3")
#define OF_ROWS(action, j) action("a" j) action("b" j) action("c" j) action("d" j)

/* What accumulators begin with: sums of their rows and filters, the bias of their filters, or nothing. */
#define OF_BOTH(j) \
    "lw t6, 4*" j "(t0)\nadd %[a" j "], t2, t6\nadd %[b" j "], t3, t6\nadd %[c" j "], t4, t6\nadd %[d" j "], t5, t6\n"
#define OF_FILTERS(j) \
    "lw %[a" j "], 4*" j "(t0)\nmv %[b" j "], %[a" j "]\nmv %[c" j "], %[a" j "]\nmv %[d" j "], %[a" j "]\n"
#define OF_NOTHING(j) "li %[a" j "], 0\nli %[b" j "], 0\nli %[c" j "], 0\nli %[d" j "], 0\n"
#define FROM_SUMS \
    GET("t1", 48) \
    GET("t0", 44) \
    "lw t2, 0(t1)\nlw t3, 4(t1)\nlw t4, 8(t1)\nlw t5, 12(t1)\naddi t1, t1, 16\n" PUT("t1", 48) EACH(OF_BOTH)
#define FROM_BIAS GET("t0", 44) EACH(OF_FILTERS)
#define FIRSTS EITHER(HAS_ZEROS, FROM_SUMS, EITHER(IS_BIASED, FROM_BIAS, EACH(OF_NOTHING)))

/* A group's results stay in the accumulators' registers. t0 and t1 hold the factor, or its lower part, and what is
 * added, t2 the shift, t3 the factor's upper part, t4 and t6 the limits of y, t5 what the form shifts by; x and its
 * step are free until then. */
#define LIMIT_ACC(acc) XP_CLIP("%[" acc "]", "%[" acc "]", "t6")
#define LIMIT_OF(j) OF_ROWS(LIMIT_ACC, j)
#define LIMITED IF(IS_CLIPPED, GET("t6", 76) EACH(LIMIT_OF))
#define LEAST EITHER(IS_WHOLE, "", GET("t6", 80))
#define RANGE_OF(acc, sum)                                                        \
    EITHER(IS_WHOLE, ".insn r 0x33, %[clip], 0x0a, %[" acc "], %[" sum "], t4\n", \
           XP_MAX("%[" acc "]", "%[" sum "]", "t6") XP_MIN("%[" acc "]", "%[" acc "]", "t4"))
#define RANGE(acc) RANGE_OF(acc, acc)
#define ADD_UP(acc) XP_ADD_SHIFT("%[" acc "]", "t1", "t2")
#define LEFT(acc) "sll %[" acc "], %[" acc "], t5\n"
#define MULTIPLY(acc) "mul %[" acc "], %[" acc "], t0\n"
#define UPPER_HALF(acc) "mulh %[" acc "], %[" acc "], t0\n"
#define LOWER(acc, sum) "mul %[" sum "], %[" acc "], t0\n"
#define RIGHT(sum) "sra %[" sum "], %[" sum "], t5\n"
#define UPPER(acc, sum) XP_MAC("%[" sum "]", "%[" acc "]", "t3")
#define SPLIT_OF_2(a, b) \
    LOWER(a, "x")        \
    LOWER(b, "x_step")   \
    RIGHT("x")           \
    RIGHT("x_step")      \
    UPPER(a, "x")        \
    UPPER(b, "x_step")   \
    ADD_UP("x")          \
    ADD_UP("x_step")     \
    RANGE_OF(a, "x")     \
    RANGE_OF(b,          \
             "x_"        \
             "step")
#define SPLIT(j) SPLIT_OF_2("a" j, "b" j) SPLIT_OF_2("c" j, "d" j)
#define HIGH(j) OF_ROWS(LEFT, j) OF_ROWS(UPPER_HALF, j) OF_ROWS(ADD_UP, j) OF_ROWS(RANGE, j)
#define NARROW(j) OF_ROWS(MULTIPLY, j) OF_ROWS(ADD_UP, j) OF_ROWS(RANGE, j)
#define SCALED(j) EITHER(IS_SPLIT, SPLIT(j), EITHER(IS_HIGH, HIGH(j), NARROW(j)))
#define OF_THE_FORM IF(IS_HIGH "|" IS_SPLIT, GET("t5", 72))

/* Factor and summand: those of all, or of one filter after the other. */
#define FACTORS EITHER(IS_ONE, GET("t0", 52) GET("t3", 88) GET("t1", 56), GET("%[w]", 52) GET("%[w_step]", 56))
#define FACTOR XP_LOAD("t0", "w") IF(IS_SPLIT, XP_LOAD("t3", "w")) XP_LOAD("t1", "w_step")
#define FINISHES(j) EITHER(IS_ONE, "", FACTOR) SCALED(j)
#define FIND(acc) ".insn r 0x03, 7, 0x20, %[" acc "], t0, %[" acc "]\n"
#define FIND_OF(j) OF_ROWS(FIND, j)
#define FOUND IF(LOOKS_UP, GET("t0", 92) EACH(FIND_OF))
/* The results of a row as a word, whose address goes to the next row. */
#define STORE(row)                                                                                             \
    ".insn r 0x57, 1, 0x70, %[" row "0], %[" row "1], %[" row "0]\n.insn r 0x57, 1, 0x6c, %[" row "0], %[" row \
    "3], %[" row "2]\n.insn r 0x2b, 6, 0, %[x_step], %[x], %[" row "0]\n"

/* All blocks. The way from the last row of x to the next word of the first is in t6, that of w in the register of g,
 * which the stack keeps above what runs need. The address of y, its step and those of the factors take the registers of
 * x, w and their steps. */
OUT_OF_LINE void blocks_4x4(struct blocks *g) {
    const X_T *x;
    const W_T *w;
    int x_step, w_step;
    int32_t a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3;
    const int words = g->words, runs = g->runs, skip = g->skip;
    struct blocks *const self = g;
    XP_BLOCK("1:\n" FIRSTS GET("%[x]", 8) GET("%[w]", 12) GET("%[x_step]", 16) GET("t6", 20) GET("%[w_step]", 24)
                 GET("%[g]", 28) BEGIN ROWS_OF_WORDS("%[words]", "%[runs]", "%[skip]", "t6", "%[g]") END
             "lw %[g], %[self]\n" LIMITED GET("t2", 68) OF_THE_FORM LEAST GET("t4", 84) FACTORS EACH(FINISHES)
                 FOUND GET("%[x]", 60) GET("%[x_step]", 64) STORE("a") STORE("b") STORE("c") STORE("d") GET("t0", 0)
                     GET("t1", 8) GET("t2", 32) PUT("%[x]", 60) "addi t0, t0, -1\nadd t1, t1, t2\n" PUT("t0", 0)
                         PUT("t1", 8) "bnez t0, 1b\n" : [a0] "=&r"(a0),
             [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "=&r"(b0), [b1] "=&r"(b1), [b2] "=&r"(b2),
             [b3] "=&r"(b3), [c0] "=&r"(c0), [c1] "=&r"(c1), [c2] "=&r"(c2), [c3] "=&r"(c3), [d0] "=&r"(d0),
             [d1] "=&r"(d1), [d2] "=&r"(d2), [d3] "=&r"(d3), [x] "=&r"(x), [w] "=&r"(w), [x_step] "=&r"(x_step),
             [w_step] "=&r"(w_step), [g] "+r"(g) : [words] "m"(words), [runs] "m"(runs), [skip] "m"(skip),
             [self] "m"(self), [sdot] "i"(SDOT_WITH_FLAGS), [clip] "i"((Y_T)-1 < 0 ? 5 : 6), [form] "i"(FORM) : "t0",
             "t1", "t2", "t3", "t4", "t5", "t6", "memory");
}

/* A multiple of four rows; at least four filters, four at a time. A last group of fewer than four is completed by
 * filters before it. */
OUT_OF_LINE void rows_in_blocks(const struct pulp_product *p, const struct rows *r, const W_T *filters, int channel) {
    const struct operands s = operands_of(p, channel);
    struct blocks g = {
        .words = words_of_run(p, r), .x_step = r->x_step, .x_back = 4 - 3 * r->x_step, .x_next = 4 * r->x_step};
    g.w_step = p->w_row, g.w_back = 4 - 3 * p->w_row, g.runs = runs_of(r), g.skip = skip_of(r);
    g.y_step = r->y_step, g.shift = p->requantisation.shift;
    g.upper = REQUANT_ONE ? (int32_t)((int64_t)s.of_all.mul >> 32) : 0;
    g.form = REQUANT_SPLIT ? p->requantisation.bits : p->requantisation.left;
    g.table = (uintptr_t)p->epilogue.table - (uintptr_t)(intptr_t)p->epilogue.low;
    g.limit = p->requantisation.limit, g.low = p->epilogue.low, g.high = p->epilogue.high;
    for (int next = 0; next < p->filters; next += 4) {
        const int first = next + 4 <= p->filters ? next : p->filters - 4;
        const struct operands of_group = operands_after(s, first);
        g.count = r->count >> 2, g.x = r->x, g.w = filters + first * p->w_row, g.y = (Y_T *)r->y + first;
        g.sums = r->sums, g.bias = of_group.bias;
        g.mul = REQUANT_ONE ? (uintptr_t)of_group.of_all.mul : (uintptr_t)of_group.mul;
        g.add = REQUANT_ONE ? (uintptr_t)of_group.of_all.add : (uintptr_t)of_group.add;
        blocks_4x4(&g);
    }
}

#endif
