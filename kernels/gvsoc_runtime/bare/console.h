/* Text to the simulator's terminal, files of the machine that runs the simulator, and the end of the simulation. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stdint.h>

/* Ends the simulation with a status from 0 to 255. */
_Noreturn void bare_exit(int status);

/* Prints one line that begins with "error:" and ends the simulation with status 1. Any core may call it. */
_Noreturn void bare_fail(const char *what);

/* The handler of unexpected traps, which calls bare_fail. */
_Noreturn void bare_trap(uint32_t cause, uint32_t address);

/* Prints a character; like bare_exit, each machine defines it. */
void bare_put(char c);

/* RISC-V semihosting: requests an operation of the simulator by its number. */
int32_t bare_host(int operation, const void *arguments);

/* Print parts of a line, which appears once it is complete. */
void print_text(const char *text);
void print_number(int32_t number);

/* Files, by the path that the simulator's working directory gives them. The controller only. */
int file_open(const char *path, int is_output); /* a handle, or -1 */
void file_close(int file);
int32_t file_bytes(int file);
/* These return 0 when all bytes were moved. */
int file_read(int file, void *memory, uint32_t bytes);
int file_write(int file, const void *memory, uint32_t bytes);

#endif
