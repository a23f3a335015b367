/* Semihosting: requests to the emulator or debugger that runs the program (Arm's "Semihosting for AArch32 and AArch64",
 * and the RISC-V specification that refers to it). Files are in the folder where the emulator was started. */
#ifndef DEEPLOY_SEMIHOST_H
#define DEEPLOY_SEMIHOST_H

#include <stdint.h>

enum { SEMIHOST_READ = 1, SEMIHOST_WRITE = 5 }; /* modes "rb" and "wb" */

int semihost_open(const char *name, int mode); /* a handle, or -1 */
void semihost_close(int file);
int32_t semihost_length(int file);
int semihost_read(int file, void *bytes, uint32_t count);        /* 0 when all bytes were read */
int semihost_write(int file, const void *bytes, uint32_t count); /* 0 when all bytes were written */
void semihost_print(const char *text);
_Noreturn void semihost_exit(int status);

#endif
