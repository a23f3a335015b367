/* What the runtime uses of the PULP SDK, as revision 7f4f2251 declares it: enough to compile against, and nothing
 * behind it. */
#ifndef PMSIS_H
#define PMSIS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PI_L2
#define PI_CL_L1
enum { PI_PERF_CYCLES, PI_CL_DMA_DIR_LOC2EXT = 0, PI_CL_DMA_DIR_EXT2LOC = 1 };
enum { PI_FS_FLAGS_READ = 1, PI_FS_FLAGS_WRITE = 2 };

struct pi_device {
    void *config, *data;
};
struct pi_cluster_conf {
    int id;
};
struct pi_cluster_task {
    void *stacks;
    uint32_t stack_size, slave_stack_size;
    int nb_cores;
};
struct pi_hyperram_conf {
    int reserve_addr_0;
};
struct pi_hostfs_conf {
    int unused;
};
typedef struct pi_task {
    uintptr_t data[4];
} pi_task_t;
typedef struct {
    uint32_t size;
} pi_fs_file_t;
typedef struct {
    uint32_t ext, loc, stride, length;
    uint16_t size;
    uint8_t id, dir, merge;
} pi_cl_dma_copy_t;

void pi_open_from_conf(struct pi_device *device, void *conf);
void *pi_l2_malloc(int size);
void pi_l2_free(void *chunk, int size);
void pmsis_exit(int err);
int pmsis_kickoff(void *arg);
pi_task_t *pi_task_callback(pi_task_t *task, void (*callback)(void *), void *arg);
unsigned int eu_evt_maskWaitAndClr(unsigned mask);
uint32_t pi_core_id(void);
uint32_t pi_cl_cluster_nb_pe_cores(void);
void pi_cluster_conf_init(struct pi_cluster_conf *conf);
int pi_cluster_open(struct pi_device *device);
struct pi_cluster_task *pi_cluster_task(struct pi_cluster_task *task, void (*entry)(void *), void *arg);
int pi_cluster_send_task_to_cl(struct pi_device *device, struct pi_cluster_task *task);
void pi_cl_team_fork(int cores, void (*entry)(void *), void *arg);
void pi_cl_team_barrier(void);
void pi_cl_send_task_to_fc(pi_task_t *task);
void *pi_cl_l1_malloc(struct pi_device *device, uint32_t size);
void pi_cl_dma_memcpy(pi_cl_dma_copy_t *copy);
void pi_cl_dma_memcpy_2d(pi_cl_dma_copy_t *copy);
void pi_cl_dma_wait(void *copy);
void pi_perf_cl_start(void);
void pi_perf_cl_reset(void);
unsigned int pi_perf_cl_read(int event);

void cl_notify_task_done(uint8_t *done, int cluster);
void cl_wait_task(uint8_t *done);
void pi_hyperram_conf_init(struct pi_hyperram_conf *conf);
int32_t pi_ram_open(struct pi_device *device);
int pi_ram_alloc(struct pi_device *device, uint32_t *address, uint32_t size);
void pi_ram_write(struct pi_device *device, uint32_t address, void *data, uint32_t size);
void pi_ram_copy_async(struct pi_device *device, uint32_t address, void *data, uint32_t size, int to_l2,
                       pi_task_t *task);
void pi_ram_copy_2d_async(struct pi_device *device, uint32_t address, void *data, uint32_t size, uint32_t stride,
                          uint32_t length, int to_l2, pi_task_t *task);

void pi_hostfs_conf_init(struct pi_hostfs_conf *conf);
int32_t pi_fs_mount(struct pi_device *device);
pi_fs_file_t *pi_fs_open(struct pi_device *device, const char *file, int flags);
int32_t pi_fs_read(pi_fs_file_t *file, void *buffer, uint32_t size);
int32_t pi_fs_write(pi_fs_file_t *file, void *buffer, uint32_t size);
void pi_fs_close(pi_fs_file_t *file);

#endif
