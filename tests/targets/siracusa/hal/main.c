/* Exercises every function of deeploy_rt.h on the simulator. The exit status is 0 when every check holds. */
#include "bare.h"
#include "check.h"
#include "console.h"

static int wrong;

void check(const char *name, int is_right) {
    print_text("check ");
    print_text(name);
    print_text(is_right ? " ok\n" : " WRONG\n");
    wrong += !is_right;
}

void report(const char *name, uint32_t cycles) {
    print_text("cycles ");
    print_text(name);
    print_text(" ");
    print_number((int32_t)cycles);
    print_text("\n");
}

static uint8_t byte(uint32_t i, uint32_t seed) {
    return (uint8_t)((i * 2654435761u + seed * 40503u) >> 24) ^ (uint8_t)(i + seed);
}

void fill(rt_address at, uint32_t bytes, uint32_t seed) {
    for (uint32_t i = 0; i < bytes; i++) ((uint8_t *)at)[i] = byte(i, seed);
}

int is_filled(rt_address at, uint32_t bytes, uint32_t from, uint32_t seed) {
    for (uint32_t i = 0; i < bytes; i++) {
        if (((const uint8_t *)at)[i] != byte(from + i, seed)) return 0;
    }
    return 1;
}

static int run(void *argument) {
    check("rt_enter runs core 0 of the cluster", rt_core() == 0);
    test_memory();
    test_team();
    test_dma();
    test_ram();
    return *(int *)argument + 1;
}

static int nothing(void *argument) {
    (void)argument;
    return 0;
}

int controller_main(void) {
    bare_set_up();
    for (int i = 0; i < 3; i++) {
        const uint32_t begin = rt_cycles();
        rt_enter(nothing, 0);
        report("enter the cluster and return", rt_cycles() - begin);
    }
    static int argument = 41;
    for (int i = 0; i < 2; i++) {
        const int result = rt_enter(run, &argument);
        if (result != 42) wrong++;
    }
    print_text("checks that do not hold: ");
    print_number(wrong);
    print_text("\n");
    return wrong != 0;
}
