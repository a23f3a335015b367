/* A plugin of QEMU that counts the instructions of one function and all that it calls, by function: a line `COUNT NAME`
 * each. Arguments: from=NAME begins to count, to=NAME (the caller) ends.
 *
 *     gcc -O2 -shared -fPIC count.c -o count.so
 *     qemu-system-arm ... -plugin ./count.so,from=network_run,to=main
 *
 * The prototypes are those of version 1 of QEMU's interface of plugins, as its documentation has them: Debian ships no
 * header. A block of instructions counts as a whole when it is entered. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*call)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*call)(unsigned, void *), int flags,
                                          void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id, void *), void *data);
void qemu_plugin_outs(const char *text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { MOST = 4096, LENGTH = 96 };

static struct function {
    char name[LENGTH];
    uint64_t instructions;
} functions[MOST];
static int function_count, is_counting;
static char from[LENGTH], to[LENGTH];

/* A block of instructions: its function above 16 bits, their number below. */
static void executed(unsigned processor, void *data) {
    (void)processor;
    struct function *const f = &functions[(uintptr_t)data >> 16];
    if (!strcmp(f->name, from)) is_counting = 1;
    if (!strcmp(f->name, to)) is_counting = 0;
    if (is_counting) f->instructions += (uintptr_t)data & 0xFFFF;
}

static int number_of(const char *name) {
    int number = 0;
    while (number < function_count && strncmp(functions[number].name, name, LENGTH - 1)) number++;
    if (number == MOST) return MOST - 1;
    if (number == function_count) snprintf(functions[function_count++].name, LENGTH, "%s", name);
    return number;
}

static void translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    const char *const name = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(block, 0));
    const uintptr_t number = (uintptr_t)number_of(name ? name : "?");
    const uintptr_t data = number << 16 | qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)data);
}

static void ended(plugin_id id, void *data) {
    (void)id, (void)data;
    for (int i = 0; i < function_count; i++) {
        char count[32];
        if (!functions[i].instructions) continue;
        snprintf(count, sizeof count, "%llu ", (unsigned long long)functions[i].instructions);
        qemu_plugin_outs(count);
        qemu_plugin_outs(functions[i].name);
        qemu_plugin_outs("\n");
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int count,
                                                               char **arguments) {
    (void)info;
    for (int i = 0; i < count; i++) {
        if (!strncmp(arguments[i], "from=", 5)) snprintf(from, LENGTH, "%s", arguments[i] + 5);
        if (!strncmp(arguments[i], "to=", 3)) snprintf(to, LENGTH, "%s", arguments[i] + 3);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
