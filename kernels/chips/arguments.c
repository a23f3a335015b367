/* Finds the library and the arguments of a chip. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"

void chip_library_path(char path[CHIP_PATH], const char *program, int chip) {
    const char *slash = strrchr(program, '/');
    const int folder = slash ? (int)(slash - program) : 1;
    snprintf(path, CHIP_PATH, "%.*s/chips/%d.so", folder, slash ? program : ".", chip);
}

char **chip_arguments(const char *folder, int chip, int *count) {
    char path[CHIP_PATH];
    snprintf(path, sizeof path, "%s/%d.args", folder, chip);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char **result = NULL, line[CHIP_PATH];
    *count = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char **more = realloc(result, sizeof *more * (size_t)(*count + 2));
        char *copy = malloc(strlen(line) + 1);
        if (!more || !copy) exit(1);
        result = more;
        result[(*count)++] = strcpy(copy, line);
        result[*count] = NULL;
    }
    fclose(file);
    return result;
}
