/* HyperRAM through the controller: lengths, alignments, rows, tickets, and its cycles. */
#include "check.h"

enum { GUARD = 16 };

static rt_address source, target; /* in L2 */
static rt_address ram;

static void transfer(int ticket, rt_address to, rt_address from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                     uint32_t from_pitch) {
    const struct rt_transfer t = {to, from, bytes, rows, to_pitch, from_pitch};
    rt_start(RAM, ticket, &t);
}

/* L2 to HyperRAM with one pitch and back with another: nothing around or between the rows changes. */
static int is_there_and_back(uint32_t bytes, uint32_t rows, uint32_t ram_pitch, uint32_t l2_pitch, uint32_t shift) {
    const uint32_t span = (rows - 1) * l2_pitch + bytes;
    fill(source, rows * bytes, bytes);
    fill(target + shift - GUARD, span + 2 * GUARD, 99);
    transfer(1, ram + shift, source, bytes, rows, ram_pitch, bytes);
    transfer(1, target + shift, ram + shift, bytes, rows, l2_pitch, ram_pitch);
    rt_wait(RAM, 1);
    int is_right =
        is_filled(target + shift - GUARD, GUARD, 0, 99) && is_filled(target + shift + span, GUARD, GUARD + span, 99);
    for (uint32_t r = 0; r < rows; r++) {
        is_right &= is_filled(target + shift + r * l2_pitch, bytes, r * bytes, bytes);
        if (r + 1 < rows && l2_pitch > bytes) {
            is_right &=
                is_filled(target + shift + r * l2_pitch + bytes, l2_pitch - bytes, GUARD + r * l2_pitch + bytes, 99);
        }
    }
    return is_right;
}

static void test_shapes(void) {
    int is_right = 1;
    for (uint32_t bytes = 1; bytes < 20; bytes++) {
        for (uint32_t shift = 0; shift < 4; shift++) is_right &= is_there_and_back(bytes, 1, bytes, bytes, shift);
    }
    check("ram: short lengths at any alignment", is_right);
    check("ram: 32 KiB", is_there_and_back(32768, 1, 32768, 32768, 0));
    check("ram: 100001 bytes", is_there_and_back(100001, 1, 100001, 100001, 0));
    is_right =
        is_there_and_back(64, 32, 100, 64, 0) && is_there_and_back(7, 5, 12, 7, 0) && is_there_and_back(1, 9, 2, 1, 0);
    check("ram: rows apart in HyperRAM", is_right);
    check("ram: rows apart in L2", is_there_and_back(16, 8, 16, 40, 0) && is_there_and_back(5, 4, 5, 11, 0));
    check("ram: rows apart on both sides", is_there_and_back(12, 6, 20, 16, 0) && is_there_and_back(3, 6, 8, 7, 1));
    check("ram: more rows than one command holds", is_there_and_back(1001, 70, 1024, 1001, 0));
    check("ram: long rows", is_there_and_back(40000, 2, 50000, 40000, 0));
}

enum { TICKETS = 8, PIECES = 5, PIECE = 136 };

static uint32_t place(int ticket, int i) {
    return (uint32_t)(ticket * PIECES + i) * 256;
}

static void test_tickets(void) {
    static const uint8_t order[TICKETS] = {5, 2, 7, 0, 6, 1, 3, 4};
    int is_right = 1;
    for (int t = 0; t < TICKETS; t++) {
        for (int i = 0; i < PIECES; i++) fill(source + place(t, i), PIECE, (uint32_t)(t * PIECES + i));
    }
    for (int i = 0; i < PIECES; i++) {
        for (int t = 0; t < TICKETS; t++) transfer(t, ram + place(t, i), source + place(t, i), PIECE, 1, PIECE, PIECE);
    }
    for (int i = 0; i < PIECES; i++) {
        for (int t = 0; t < TICKETS; t++)
            transfer(t, target + place(t, i), ram + place(t, i), PIECE - 1, 1, PIECE, PIECE);
    }
    for (int n = 0; n < TICKETS; n++) {
        const int t = order[n];
        rt_wait(RAM, t);
        rt_wait(RAM, t);
        for (int i = 0; i < PIECES; i++)
            is_right &= is_filled(target + place(t, i), PIECE - 1, 0, (uint32_t)(t * PIECES + i));
    }
    check("ram: tickets waited for in any order", is_right);
}

static uint32_t measured(rt_address to, rt_address from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                         uint32_t from_pitch) {
    uint32_t cycles = 0;
    for (int i = 0; i < 2; i++) { /* the second time from warm caches */
        const uint32_t begin = rt_cycles();
        transfer(0, to, from, bytes, rows, to_pitch, from_pitch);
        rt_wait(RAM, 0);
        cycles = rt_cycles() - begin;
    }
    return cycles;
}

static void test_cycles(void) {
    static const struct {
        const char *write, *read;
        uint32_t bytes;
    } sizes[] = {{"ram write 64 B", "ram read 64 B", 64},
                 {"ram write 1 KiB", "ram read 1 KiB", 1024},
                 {"ram write 8 KiB", "ram read 8 KiB", 8192},
                 {"ram write 32 KiB", "ram read 32 KiB", 32768}};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint32_t n = sizes[i].bytes;
        report(sizes[i].write, measured(ram, source, n, 1, n, n));
        report(sizes[i].read, measured(target, ram, n, 1, n, n));
    }
    report("ram read 32 rows of 64 B", measured(target, ram, 64, 32, 64, 128));
    const struct rt_transfer t = {target, ram, 64, 1, 64, 64};
    uint32_t begin = rt_cycles();
    rt_start(RAM, 0, &t);
    report("ram issue", rt_cycles() - begin);
    rt_wait(RAM, 0);
    begin = rt_cycles();
    for (int i = 0; i < 8; i++) transfer(0, target, ram, 1024, 1, 1024, 1024);
    rt_wait(RAM, 0);
    report("ram read 8 of 1 KiB", rt_cycles() - begin);
}

void test_ram(void) {
    source = rt_arena(L2) + 64;
    target = rt_arena(L2) + 131072 + 64;
    ram = rt_arena(L3) + 64;
    test_shapes();
    test_tickets();
    test_cycles();
    check("ram: constants lie outside the arena", rt_constants(L3) + (1 << 20) <= rt_arena(L3));
}
