#include "neureka_conv.h"

/* Leaves one job that was not waited for. */
void KERNEL(const struct neureka_conv *k) {
    struct neureka_tile tile = k->tile;
    int jobs = 0;
    for (int32_t image = 0; image < k->images; image++) {
        if (k->is_linear) {
            jobs += neureka_linear(k->accelerator, &k->layer, &tile, tile.height * tile.width);
        } else {
            neureka_job(k->accelerator, &k->layer, &tile);
            jobs++;
        }
        tile.x += (rt_address)k->x_image, tile.y += (rt_address)k->y_image;
    }
    while (--jobs > 0) rt_job_wait(k->accelerator);
}
