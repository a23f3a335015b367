/* Memory levels as address ranges: arenas with guard pages, far levels as handles, and regions that callers declare.
 *
 * A near arena is mapped twice, once for generated code and once for the model. A far arena is a range of addresses
 * without memory, so that a load or store through a handle is a fault, and its bytes lie elsewhere.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HOST_ASAN 1
#endif
#ifdef HOST_ASAN
#include <sanitizer/asan_interface.h>
#endif

enum { GUARD = 1 << 16, ALTERNATE_STACK = 1 << 16 };

static struct host_space *spaces; /* the arena and the constants of every level */
static struct host_space *regions;
static int region_count, region_room, lasting_regions;
static uint32_t region_salt;

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "host model: %s\n", what);
    exit(1);
}

static size_t rounded(size_t value, size_t unit) {
    return (value + unit - 1) / unit * unit;
}

const char *host_level_name(int level) {
    return rt_machine.level[level].name;
}

struct host_space *host_arena(int level) {
    return &spaces[2 * level];
}

/* Reserves addresses that fault when accessed, with guard pages around `bytes`. */
static unsigned char *reserve(size_t bytes) {
    unsigned char *begin = mmap(NULL, bytes + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) give_up("the address space is too small for the machine's levels");
    return begin + GUARD;
}

/* Memory that can be mapped twice. */
static int open_memory(size_t bytes) {
    char name[40];
    snprintf(name, sizeof name, "/deeploy-%ld", (long)getpid());
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0) {
        shm_unlink(name);
    } else {
        FILE *temporary = tmpfile();
        if (!temporary) give_up("neither shared memory nor a temporary file can be had");
        file = fileno(temporary);
    }
    if (ftruncate(file, (off_t)bytes)) give_up("there is not enough shared memory");
    return file;
}

/* Alignment of the level's addresses, at least that of the host's pointers. */
static size_t unit_of(int level) {
    size_t unit = sizeof(void *);
    if (rt_machine.level[level].alignment > unit) unit = rt_machine.level[level].alignment;
    for (int e = 0; e < rt_machine.engines; e++) {
        const struct rt_engine *engine = &rt_machine.engine[e];
        if ((engine->near == level || engine->far == level) && engine->alignment > unit) unit = engine->alignment;
    }
    return unit;
}

/* The space has exactly the promised alignment, no more, and ends as close to the guard page as that allows. */
static void open_space(struct host_space *space, int level, enum host_kind kind, uint32_t bytes) {
    const size_t unit = unit_of(level), body = rounded(bytes + 2 * unit, (size_t)sysconf(_SC_PAGESIZE));
    const size_t begin = (body - bytes - unit) / (2 * unit) * (2 * unit) + unit;
    unsigned char *at = reserve(body), *memory;
    if (rt_machine.level[level].is_far) {
        memory = malloc(body);
        if (!memory) give_up("out of memory");
    } else {
        const int file = open_memory(body);
        memory = mmap(NULL, body, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        void *seen = mmap(at, body, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        if (memory == MAP_FAILED || seen == MAP_FAILED) give_up("the memory of a level cannot be mapped");
        close(file);
    }
    *space = (struct host_space){.level = level,
                                 .kind = kind,
                                 .begin = (rt_address)(at + begin),
                                 .bytes = bytes,
                                 .before = (uint32_t)begin,
                                 .after = (uint32_t)(body - begin - bytes),
                                 .memory = memory + begin,
                                 .is_writable = kind == HOST_ARENA,
                                 .salt = (uint32_t)(2 * level + (kind == HOST_CONSTANTS))};
    host_poison(space, -(int64_t)space->before, body);
    host_hide(space, -(int64_t)space->before, space->before);
    host_hide(space, bytes, space->after);
}

static const char *fault_rule(const struct host_space *space) {
    return rt_machine.level[space->level].is_far
               ? "Addresses of a far level are handles: only transfers read and write there."
               : "Code may only touch the arena of the level.";
}

static struct sigaction earlier[2]; /* signal handlers of other chips in this program: SIGSEGV, SIGBUS */

static void on_fault(int number, siginfo_t *info, void *context) {
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < 2 * rt_machine.levels; i++) {
        const struct host_space *space = &spaces[i];
        if (at + GUARD < space->begin - space->before || at >= space->begin + space->bytes + space->after + GUARD)
            continue;
        char text[HOST_TEXT];
        const struct host_place place = {*space, (uint32_t)(at - space->begin), NULL};
        host_describe(&place, text);
        host_violation(fault_rule(space), "a load or store at %s", text);
    }
    const struct sigaction *other = &earlier[number == SIGBUS];
    if (other->sa_flags & SA_SIGINFO) other->sa_sigaction(number, info, context);
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_faults(void) {
    static unsigned char stack[ALTERNATE_STACK];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    action.sa_sigaction = on_fault;
    sigaltstack(&alternate, NULL);
    sigaction(SIGSEGV, &action, &earlier[0]);
    sigaction(SIGBUS, &action, &earlier[1]);
}

static void check_machine(void) {
    for (int i = 0; i < rt_machine.levels; i++) {
        const uint32_t alignment = rt_machine.level[i].alignment;
        if (!alignment || alignment & (alignment - 1)) give_up("the alignment of a level is not a power of two");
    }
    for (int i = 0; i < rt_machine.engines; i++) {
        const struct rt_engine *e = &rt_machine.engine[i];
        if (e->near < 0 || e->near >= rt_machine.levels || e->far < 0 || e->far >= rt_machine.levels ||
            e->near == e->far)
            give_up("a transfer engine does not connect two levels");
    }
}

void host_open(uint64_t seed) {
    check_machine();
    host_seed(seed);
    host_reset_counters();
    spaces = calloc((size_t)rt_machine.levels * 2, sizeof *spaces);
    if (!spaces) give_up("out of memory");
    region_salt = (uint32_t)rt_machine.levels * 2;
    for (int level = 0; level < rt_machine.levels; level++) {
        const struct rt_level *l = &rt_machine.level[level];
        open_space(&spaces[2 * level], level, HOST_ARENA, l->capacity);
        open_space(&spaces[2 * level + 1], level, HOST_CONSTANTS, l->is_far ? l->constants : 0);
    }
    catch_faults();
}

static int contains(const struct host_space *space, rt_address address) {
    return address >= space->begin && address - space->begin < space->bytes;
}

/* Finds the space that an address lies in; the latest region first. Returns 0 when there is none. */
int host_find(rt_address address, struct host_place *place) {
    const struct host_space *found = NULL;
    for (int i = region_count - 1; i >= 0 && !found; i--) {
        if (contains(&regions[i], address)) found = &regions[i];
    }
    for (int i = 0; i < 2 * rt_machine.levels && !found; i++) {
        if (contains(&spaces[i], address)) found = &spaces[i];
    }
    if (!found) return 0;
    *place = (struct host_place){*found, (uint32_t)(address - found->begin), NULL};
    return 1;
}

rt_address rt_arena(int level) {
    if (level < 0 || level >= rt_machine.levels) {
        host_violation("Levels are numbered as rt_machine lists them.", "rt_arena(%d): there are %d levels", level,
                       rt_machine.levels);
    }
    return spaces[2 * level].begin;
}

rt_address rt_constants(int level) {
    if (level < 0 || level >= rt_machine.levels || !spaces[2 * level + 1].bytes) {
        host_violation("rt_machine states the bytes of the constants of every far level.",
                       "rt_constants(%d): that level holds no constants", level);
    }
    return spaces[2 * level + 1].begin;
}

void rt_region(int level, const void *begin, uint32_t bytes, int is_writable) {
    host_lock();
    if (level < 0 || level >= rt_machine.levels) {
        host_violation("Levels are numbered as rt_machine lists them.", "rt_region(%d): there are %d levels", level,
                       rt_machine.levels);
    }
    if (region_count == region_room) {
        region_room = 2 * region_room + 16;
        regions = realloc(regions, sizeof *regions * (size_t)region_room);
        if (!regions) give_up("out of memory");
    }
    regions[region_count] = (struct host_space){.level = level,
                                                .kind = HOST_REGION,
                                                .begin = (rt_address)begin,
                                                .bytes = bytes,
                                                .memory = (unsigned char *)(uintptr_t)begin,
                                                .is_writable = is_writable,
                                                .salt = region_salt + (uint32_t)region_count};
    region_count++;
    host_unlock();
}

/* Regions declared during initialisation stay valid for ever, all others until the network returns. */
void host_keep_regions(void) {
    lasting_regions = region_count;
}

void host_forget_regions(void) {
    region_count = lasting_regions;
}

#ifdef HOST_ASAN
/* The address sanitizer calls this before it reports: it knows addresses, the model knows blocks. */
void __asan_on_error(void) {
    const rt_address at = (rt_address)__asan_get_report_address();
    struct host_place place;
    char text[HOST_TEXT];
    if (!host_find(at, &place) || place.space.kind != HOST_ARENA) return;
    host_describe(&place, text);
    host_tell("Code touches living blocks only, and none that a transfer is on its way to.", "a load or store at %s",
              text);
}
#endif

void host_hide(const struct host_space *space, int64_t offset, uint64_t bytes) {
#ifdef HOST_ASAN
    if (space->kind == HOST_ARENA && !rt_machine.level[space->level].is_far)
        __asan_poison_memory_region((void *)(space->begin + (uintptr_t)offset), bytes);
#else
    (void)space, (void)offset, (void)bytes;
#endif
}

void host_show(const struct host_space *space, int64_t offset, uint64_t bytes) {
#ifdef HOST_ASAN
    if (space->kind == HOST_ARENA && !rt_machine.level[space->level].is_far)
        __asan_unpoison_memory_region((void *)(space->begin + (uintptr_t)offset), bytes);
#else
    (void)space, (void)offset, (void)bytes;
#endif
}
