/* pulp-open, beside what all chips of its family have (pulp.h). */
#ifndef SOC_H
#define SOC_H

#define L1_BYTES 0x00010000u
#define HYPERRAM_BYTES 0x00800000u
#define HYPER (UDMA + 0x480) /* transactions 0 of the uDMA's HyperRAM */
#define HYPER_PERIPHERAL 8   /* its number among the uDMA's peripherals */

#endif
