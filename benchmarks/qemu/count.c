/* A plugin of QEMU that counts the instructions of one function and all that it calls, by function: a line `COUNT NAME`
 * each. Arguments: from=NAME begins to count, to=NAME (the caller) ends. With mark=NAME, a line `MARK N N ...` is written
 * whenever that function is entered: how many instructions of every kind (`enum kind`) were executed since the program
 * began, from which benchmarks/estimated_cycles.py estimates cycles.
 *
 *     gcc -O2 -shared -fPIC count.c -o count.so
 *     qemu-system-arm ... -plugin ./count.so,from=network_run,to=main
 *
 * The prototypes are those of version 1 of QEMU's interface of plugins, as its documentation has them: Debian ships no
 * header. A block of instructions counts as a whole when it is entered. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *instruction);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*call)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*call)(unsigned, void *), int flags,
                                          void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id, void *), void *data);
void qemu_plugin_outs(const char *text);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { MOST = 4096, LENGTH = 96 };

/* Kinds of instructions. A load is `BEHIND` where the instruction in front of it loads or stores one register; REGISTER
 * counts those of MULTIPLE (loads and stores of several registers); TAKEN counts how often control went elsewhere than to
 * the next instruction. */
enum kind { PLAIN, LOAD, BEHIND, STORE, MULTIPLE, REGISTER, MULTIPLY, HIGH, ADDED, DIVIDE, FLOAT_ADDED, FLOAT_DIVIDE, TAKEN, KINDS };

static struct function {
    char name[LENGTH];
    uint64_t instructions;
} functions[MOST];
static int function_count, is_counting;
static char from[LENGTH], to[LENGTH], mark[LENGTH];

struct block {
    struct function *function;
    uint64_t start, end;
    unsigned counts[KINDS], instructions;
};
static uint64_t counts[KINDS], next_address, mark_address;

static void write_mark(void) {
    char line[32 * KINDS], *end = line + sprintf(line, "MARK");
    for (int kind = 0; kind < KINDS; kind++) end += sprintf(end, " %llu", (unsigned long long)counts[kind]);
    sprintf(end, "\n");
    qemu_plugin_outs(line);
}

static void executed(unsigned processor, void *data) {
    (void)processor;
    const struct block *const block = data;
    struct function *const f = block->function;
    if (!strcmp(f->name, from)) is_counting = 1;
    if (!strcmp(f->name, to)) is_counting = 0;
    if (is_counting) f->instructions += block->instructions;
    counts[TAKEN] += block->start != next_address;
    next_address = block->end;
    if (*mark && !strcmp(f->name, mark)) {
        if (!mark_address) mark_address = block->start;
        if (mark_address == block->start) write_mark();
    }
    for (int kind = 0; kind < TAKEN; kind++) counts[kind] += block->counts[kind];
}

static struct function *function_of(const char *name) {
    int number = 0;
    while (number < function_count && strncmp(functions[number].name, name, LENGTH - 1)) number++;
    if (number == MOST) return &functions[MOST - 1];
    if (number == function_count) snprintf(functions[function_count++].name, LENGTH, "%s", name);
    return &functions[number];
}

static int begins(const char *text, const char *const *words) {
    while (*words && strncmp(text, *words, strlen(*words))) words++;
    return *words != NULL;
}

/* The kind of an instruction by its text, and how many registers a MULTIPLE one moves (r0-r3 are written one by one). */
static enum kind kind_of(const char *text, unsigned *registers) {
    static const char *const multiple[] = {"ldrd", "strd", "ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop", NULL};
    static const char *const loads[] = {"ldr", "vldr", "lw", "lh", "lb", "flw", "c.lw", "c.flw", NULL};
    static const char *const stores[] = {"str", "vstr", "sw", "sh ", "sb ", "fsw", "c.sw", "c.fsw", NULL};
    static const char *const high[] = {"mulh", NULL}, *const added[] = {"mla", "mls", NULL};
    static const char *const divided[] = {"sdiv", "udiv", "div", "rem", NULL};
    static const char *const float_added[] = {"vmla", "vmls", "vfma", "vfms", "vnmla", "vnmls", "vfnm", NULL};
    static const char *const float_divided[] = {"vdiv", "vsqrt", "fdiv", "fsqrt", NULL};
    *registers = 0;
    if (begins(text, multiple)) {
        const char *list = strchr(text, '{');
        *registers = !strncmp(text + 3, "d", 1) && !list ? 2 : 1;
        for (; list && *list; list++) *registers += *list == ',';
        return MULTIPLE;
    }
    if (begins(text, loads)) return LOAD;
    if (begins(text, stores)) return STORE;
    if (begins(text, high)) return HIGH;
    if (begins(text, added)) return ADDED;
    if (!strncmp(text, "mul", 3)) return MULTIPLY;
    if (begins(text, float_divided)) return FLOAT_DIVIDE;
    if (begins(text, divided)) return DIVIDE;
    return begins(text, float_added) ? FLOAT_ADDED : PLAIN;
}

static void translated(plugin_id id, struct qemu_plugin_tb *translation) {
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(translation);
    const struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(translation, 0);
    const char *const name = qemu_plugin_insn_symbol(instruction);
    struct block *const block = calloc(1, sizeof *block);
    block->function = function_of(name ? name : "?");
    block->start = qemu_plugin_insn_vaddr(instruction);
    block->instructions = (unsigned)count;
    enum kind before = PLAIN;
    for (size_t i = 0; i < count; i++) {
        instruction = qemu_plugin_tb_get_insn(translation, i);
        block->end = qemu_plugin_insn_vaddr(instruction) + qemu_plugin_insn_size(instruction);
        if (!*mark) continue;
        char *const text = qemu_plugin_insn_disas(instruction);
        const size_t digits = strspn(text, "0123456789abcdef"); /* some disassemblers write the code in front */
        unsigned registers;
        enum kind kind = kind_of(digits >= 4 ? text + digits + strspn(text + digits, " \t") : text, &registers);
        free(text);
        if (kind == LOAD && (before == LOAD || before == BEHIND || before == STORE)) kind = BEHIND;
        block->counts[kind]++;
        block->counts[REGISTER] += registers;
        before = kind;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(translation, executed, 0, block);
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
        if (!strncmp(arguments[i], "mark=", 5)) snprintf(mark, LENGTH, "%s", arguments[i] + 5);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
