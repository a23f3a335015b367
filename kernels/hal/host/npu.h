/* Accelerators in the host machine model: jobs (npu_jobs.c), and what N-EUREKA computes (npu.c). */
#ifndef DEEPLOY_HOST_NPU_H
#define DEEPLOY_HOST_NPU_H

#include "model.h"

enum { NPU_RANGES = 6 };

/* What a job reads or writes: `rows` times `columns` runs of `bytes`, in the level of operands or of weights. */
struct host_range {
    const char *name;
    int is_written, is_weights; /* is_weights: in the level of weights */
    uint32_t address, rows, columns, bytes;
    uint32_t row_pitch, column_pitch;
    struct host_place place;
};

/* Lists the ranges that the job reads, and last the one that it writes. Ends the program if registers are invalid. */
int npu_ranges(const uint32_t *registers, int count, struct host_range ranges[NPU_RANGES]);

/* Computes what the job writes from what it reads; of each range, the runs are packed one after the other. */
void npu_compute(const uint32_t *registers, unsigned char *const *operands, unsigned char *result);

#endif
