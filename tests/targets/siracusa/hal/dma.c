/* Cluster DMA: lengths, alignments, rows, tickets, and its cycles. */
#include "check.h"

enum { GUARD = 16 };

static rt_address near, far;

static uint32_t transfer(int ticket, rt_address to, rt_address from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                         uint32_t from_pitch) {
    const struct rt_transfer t = {to, from, bytes, rows, to_pitch, from_pitch};
    const uint32_t begin = rt_cycles();
    rt_start(DMA, ticket, &t);
    return rt_cycles() - begin;
}

/* Rows from one place to another; what lies around and between them stays as it was. */
static int is_moved(rt_address to, rt_address from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                    uint32_t from_pitch) {
    const uint32_t from_bytes = (rows - 1) * from_pitch + bytes, to_bytes = (rows - 1) * to_pitch + bytes;
    fill(from, from_bytes, bytes);
    fill(to - GUARD, to_bytes + 2 * GUARD, 99);
    transfer(3, to, from, bytes, rows, to_pitch, from_pitch);
    rt_wait(DMA, 3);
    int is_right = is_filled(to - GUARD, GUARD, 0, 99) && is_filled(to + to_bytes, GUARD, GUARD + to_bytes, 99);
    for (uint32_t r = 0; r < rows; r++) {
        is_right &= is_filled(to + r * to_pitch, bytes, r * from_pitch, bytes);
        if (r + 1 < rows && to_pitch > bytes) {
            is_right &= is_filled(to + r * to_pitch + bytes, to_pitch - bytes, GUARD + r * to_pitch + bytes, 99);
        }
    }
    return is_right;
}

static int both_ways(uint32_t bytes, uint32_t rows, uint32_t near_pitch, uint32_t far_pitch, uint32_t shift) {
    return is_moved(near + shift, far, bytes, rows, near_pitch, far_pitch) &&
           is_moved(far + shift, near, bytes, rows, far_pitch, near_pitch);
}

static void test_shapes(void) {
    static const uint32_t lengths[] = {1, 2, 3, 4, 5, 31, 63, 64, 65, 255, 256, 257, 1000, 1023};
    int is_right = 1;
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (uint32_t shift = 0; shift < 4; shift++) {
            is_right &= both_ways(lengths[i], 1, lengths[i], lengths[i], shift);
        }
    }
    check("dma: short lengths at any alignment", is_right);
    is_right = both_ways(65535, 1, 65535, 65535, 1) && both_ways(65536, 1, 65536, 65536, 0);
    check("dma: 64 KiB", is_right);
    check("dma: beyond 17 bits", both_ways(140001, 1, 140001, 140001, 0));
    is_right = both_ways(32, 16, 32, 100, 0) && both_ways(7, 9, 7, 13, 1) && both_ways(1, 5, 1, 3, 0);
    check("dma: rows apart in L2", is_right);
    check("dma: rows apart in L1", both_ways(5, 6, 9, 5, 0) && both_ways(12, 4, 16, 20, 2));
    check("dma: rows that follow each other", both_ways(24, 40, 24, 24, 0));
    check("dma: more rows than one command holds", both_ways(300, 500, 300, 301, 0));
    check("dma: a pitch of more than 16 bits", both_ways(64, 4, 64, 70000, 0));
    const rt_address guard = near;
    fill(guard, 64, 1);
    transfer(0, near, far, 0, 3, 0, 0);
    transfer(0, near, far, 8, 0, 8, 8);
    rt_wait(DMA, 0);
    check("dma: nothing to move", is_filled(guard, 64, 0, 1));
}

enum { TICKETS = 8, PIECES = 5, PIECE = 200 };

static rt_address piece(rt_address base, int ticket, int i) {
    return base + (uint32_t)(ticket * PIECES + i) * 256;
}

/* 40 transfers in turns over all tickets, which is more than there are counters. */
static void test_tickets(void) {
    static const uint8_t order[TICKETS] = {5, 2, 7, 0, 6, 1, 3, 4};
    int is_right = 1;
    fill(near, TICKETS * PIECES * 256, 7);
    for (int t = 0; t < TICKETS; t++) {
        for (int i = 0; i < PIECES; i++) fill(piece(far, t, i), PIECE, (uint32_t)(t * PIECES + i));
    }
    for (int i = 0; i < PIECES; i++) {
        for (int t = 0; t < TICKETS; t++) transfer(t, piece(near, t, i), piece(far, t, i), PIECE, 1, PIECE, PIECE);
    }
    for (int n = 0; n < TICKETS; n++) {
        const int t = order[n];
        rt_wait(DMA, t);
        rt_wait(DMA, t);
        for (int i = 0; i < PIECES; i++) is_right &= is_filled(piece(near, t, i), PIECE, 0, (uint32_t)(t * PIECES + i));
    }
    check("dma: tickets waited for in any order", is_right);

    /* A long transfer under one ticket, short ones under another that goes on meanwhile. */
    const rt_address big = near + 65536;
    fill(far + 65536, 60000, 3);
    fill(far, 512, 4);
    transfer(1, big, far + 65536, 60000, 1, 60000, 60000);
    for (int i = 0; i < 30; i++) {
        transfer(2, near + (uint32_t)i * 512, far, 512, 1, 512, 512);
        rt_wait(DMA, 2);
        is_right &= is_filled(near + (uint32_t)i * 512, 512, 0, 4);
    }
    rt_wait(DMA, 1);
    check("dma: one ticket goes on while another is open", is_right && is_filled(big, 60000, 0, 3));
}

static void measure(const char *name, rt_address to, rt_address from, uint32_t bytes, uint32_t rows, uint32_t to_pitch,
                    uint32_t from_pitch) {
    for (int i = 0; i < 2; i++) { /* the second time from warm caches */
        const uint32_t begin = rt_cycles();
        const uint32_t issue = transfer(0, to, from, bytes, rows, to_pitch, from_pitch);
        rt_wait(DMA, 0);
        const uint32_t end = rt_cycles();
        if (!i) continue;
        report(name, end - begin);
        if (bytes == 1024) report("dma issue", issue);
    }
}

void test_dma(void) {
    near = rt_arena(L1) + 64;
    far = rt_arena(L2) + 64;
    test_shapes();
    test_tickets();
    measure("dma in 64 B", near, far, 64, 1, 64, 64);
    measure("dma in 1 KiB", near, far, 1024, 1, 1024, 1024);
    measure("dma out 1 KiB", far, near, 1024, 1, 1024, 1024);
    measure("dma in 16 KiB", near, far, 16384, 1, 16384, 16384);
    measure("dma out 16 KiB", far, near, 16384, 1, 16384, 16384);
    measure("dma in 16 rows of 32 B", near, far, 32, 16, 32, 64);
    measure("dma out 16 rows of 32 B", far, near, 32, 16, 64, 32);
    const struct rt_transfer t = {near, far, 64, 1, 64, 64};
    const uint32_t begin = rt_cycles();
    for (int i = 0; i < 8; i++) rt_start(DMA, 0, &t);
    report("dma issue 8 of 64 B", rt_cycles() - begin);
    rt_wait(DMA, 0);
}
