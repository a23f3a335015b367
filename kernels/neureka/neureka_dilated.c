#include "neureka_dilated.h"

/* Every DILATION-th output along an axis: how many, the first element of x inside that they see, and whether their
 * first and last windows see one before x, or behind it. */
struct phase {
    int32_t count, from, before, behind;
};

static inline struct phase phase_of(int32_t first, int32_t outputs, int32_t border, int32_t size) {
    const int32_t count = (outputs - first + DILATION - 1) / DILATION, tap = first - border;
    return (struct phase){count, tap < 0 ? tap + DILATION : tap, tap < 0, tap + (count + 1) * DILATION >= size};
}

/* A job for each row and column within a step of the dilation. Leaves one that was not waited for. */
void KERNEL(const struct neureka_dilated *k) {
    const struct neureka_tile *const all = &k->tile;
    int jobs = 0;
    for (int32_t image = 0; image < k->images; image++) {
        for (int32_t i = 0; i < DILATION && i < all->height; i++) {
            const struct phase rows = phase_of(i, all->height, all->top, k->rows);
            for (int32_t j = 0; j < DILATION && j < all->width; j++, jobs++) {
                const struct phase columns = phase_of(j, all->width, all->left, k->columns);
                struct neureka_tile t = *all;
                t.x += (rt_address)(image * k->x_image + rows.from * all->x_row + columns.from * all->x_pixel);
                t.y += (rt_address)(image * k->y_image + i * all->y_row + j * all->y_pixel);
                t.height = rows.count, t.width = columns.count;
                t.x_pixel *= DILATION, t.x_row *= DILATION, t.y_pixel *= DILATION, t.y_row *= DILATION;
                t.top = rows.before, t.bottom = rows.behind, t.left = columns.before, t.right = columns.behind;
                neureka_job(k->accelerator, &k->layer, &t);
            }
        }
    }
    while (--jobs > 0) rt_job_wait(k->accelerator);
}
