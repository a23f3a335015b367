/* Siracusa, beside what all chips of its family have (pulp.h). */
#ifndef SOC_H
#define SOC_H

#define L1_BYTES 0x00040000u
#define HYPERRAM_BYTES 0x00800000u
#define HYPER (UDMA + 0x280) /* transactions 0 of the uDMA's HyperRAM */
#define HYPER_PERIPHERAL 4   /* its number among the uDMA's peripherals */

#define WEIGHT_MEMORY 0x10400000u /* for N-EUREKA; cores and DMA reach it, too */
#define WEIGHT_MEMORY_BYTES 0x00800000u
#define NEUREKA 0x10201000u

#endif
