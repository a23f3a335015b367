/* Moves boxes (rectangular parts of a tensor) with a transfer engine, within its limits. */
#ifndef DEEPLOY_BOX_H
#define DEEPLOY_BOX_H

#include "deeploy_rt.h"

enum { BOX_AXES = 6 };

/* A run of `bytes` contiguous bytes, repeated along `axes` outer axes, outermost first. On the near side, the runs are
 * packed without gaps, in the order of the axes. */
struct rt_box {
    rt_address near, far;
    uint32_t bytes;
    int axes;
    uint32_t count[BOX_AXES];
    uint32_t pitch[BOX_AXES]; /* distance in bytes between two steps along the axis on the far side */
};

/* Starts to move a box from the far to the near side, or back. Empty boxes move nothing. */
void rt_fetch(int engine, int ticket, const struct rt_box *box);
void rt_store(int engine, int ticket, const struct rt_box *box);

/* The same for one run, and for `rows` runs of `bytes`, `pitch` apart on the far side: most transfers of small layers.
 * A runtime may define these four functions itself, and call rt_move_rows for what does not fit one transfer. */
void rt_fetch_run(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes);
void rt_store_run(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes);
void rt_fetch_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                   uint32_t pitch);
void rt_store_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                   uint32_t pitch);
void rt_move_rows(int engine, int ticket, int is_store, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                  uint32_t pitch);

#endif
