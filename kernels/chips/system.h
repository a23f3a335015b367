/* What the programs that run all chips of a system have in common. CHIPS and CHIP_QUEUE are the project's. */
#ifndef DEEPLOY_SYSTEM_H
#define DEEPLOY_SYSTEM_H

enum { CHIP_PATH = 4096 };

/* The library of a chip, in the folder chips beside a program. */
void chip_library_path(char path[CHIP_PATH], const char *program, int chip);

/* The lines of folder/CHIP.args and their number; NULL when there is no such file. */
char **chip_arguments(const char *folder, int chip, int *count);

#endif
