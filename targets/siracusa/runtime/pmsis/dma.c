/* The cluster DMA. The SDK counts the transfers of one `merge` chain with one of 16 hardware counters, and lets others
 * join the newest chain only: a ticket holds every chain that its transfers went to. Lengths of the SDK's structure
 * have 16 bits. */
#include "pmsis.h"
#include "sdk.h"

enum { CHAINS = 16, LONGEST = 65535, PIECE = 32768, LONGEST_PITCH = 65535 };

static PI_CL_L1 pi_cl_dma_copy_t chains[CHAINS];
static PI_CL_L1 uint32_t owned[TICKETS] = {0}; /* chains of the ticket, a bit each */
static PI_CL_L1 uint32_t taken = 0;            /* chains of all tickets */
static PI_CL_L1 int newest = -1;               /* the ticket of the newest chain, while it is open */

static void send(pi_cl_dma_copy_t *copy, uint32_t near, uint32_t far, uint32_t bytes) {
    copy->loc = near;
    copy->ext = far;
    copy->size = (uint16_t)bytes;
    pi_cl_dma_memcpy(copy);
}

static void send_rows(pi_cl_dma_copy_t *copy, uint32_t near, uint32_t far, uint32_t bytes, uint32_t rows,
                      uint32_t pitch) {
    copy->loc = near;
    copy->ext = far;
    copy->size = (uint16_t)(bytes * rows);
    copy->length = bytes;
    copy->stride = pitch;
    pi_cl_dma_memcpy_2d(copy);
}

/* A chain that is free; when none is, the transfers of one ticket are waited for. */
static int free_chain(void) {
    for (int t = 0; t < TICKETS && taken == (1u << CHAINS) - 1; t++) dma_wait(t);
    int chain = 0;
    while (taken >> chain & 1) chain++;
    return chain;
}

/* Every command of a chain but its first is merged with what came before; the SDK keeps the counter in the first. */
static pi_cl_dma_copy_t *next_command(int ticket, pi_cl_dma_copy_t *merged) {
    if (newest == ticket) return merged;
    const int chain = free_chain();
    owned[ticket] |= 1u << chain;
    taken |= 1u << chain;
    newest = ticket;
    chains[chain].dir = merged->dir;
    chains[chain].merge = 0;
    return &chains[chain];
}

static void start_run(int ticket, pi_cl_dma_copy_t *merged, uint32_t near, uint32_t far, uint32_t bytes) {
    while (bytes) {
        const uint32_t n = bytes <= LONGEST ? bytes : PIECE;
        send(next_command(ticket, merged), near, far, n);
        near += n;
        far += n;
        bytes -= n;
    }
}

void dma_start(int ticket, const struct rt_transfer *t, int is_to_l1) {
    order_memory();
    const uint32_t bytes = t->bytes, near_pitch = is_to_l1 ? t->to_pitch : t->from_pitch;
    const uint32_t pitch = is_to_l1 ? t->from_pitch : t->to_pitch;
    uint32_t near = is_to_l1 ? t->to : t->from, far = is_to_l1 ? t->from : t->to;
    uint32_t left = bytes ? t->rows : 0;
    pi_cl_dma_copy_t merged;
    merged.dir = is_to_l1 ? PI_CL_DMA_DIR_EXT2LOC : PI_CL_DMA_DIR_LOC2EXT;
    merged.merge = 1;
    if (left <= 1 || (near_pitch == bytes && pitch == bytes)) {
        start_run(ticket, &merged, near, far, bytes * left);
        return;
    }
    /* Rows that are apart in L1, too long for one command or too far apart go one by one. */
    const int has_rows = near_pitch == bytes && bytes <= LONGEST / 2 && pitch <= LONGEST_PITCH;
    const uint32_t most = has_rows ? LONGEST / bytes : 1;
    while (left) {
        const uint32_t rows = left < most ? left : most;
        if (has_rows)
            send_rows(next_command(ticket, &merged), near, far, bytes, rows, pitch);
        else
            start_run(ticket, &merged, near, far, bytes);
        near += rows * near_pitch;
        far += rows * pitch;
        left -= rows;
    }
}

void dma_wait(int ticket) {
    uint32_t mine = owned[ticket];
    if (newest == ticket) newest = -1;
    owned[ticket] = 0;
    taken &= ~mine;
    for (int chain = 0; mine; chain++, mine >>= 1) {
        if (mine & 1) pi_cl_dma_wait(&chains[chain]);
    }
    order_memory();
}
