<%
P = prefix.upper()
base = levels[0].lower()
%>\
/* The self-test of network ${prefix}: inputs and expected outputs, and the CRC-32 of what every layer leaves in memory, as the reference
 * computes them. It observes layers by DEEPLOY_PROFILE, which the header defines; -DDEEPLOY_NO_SELF_TEST
 * leaves all of it out. */
#include "${prefix}.h"

#ifndef DEEPLOY_NO_SELF_TEST
#include "deeploy_check.h"
% if not test["is_exact"]:
#include "deeploy_values.h"
% endif

enum { TESTED_SAMPLES = ${test["samples"]}, TESTED_LAYERS = ${len(test["layers"])}, TESTED_DIMENSIONS = ${test["room"]} };

/* Where a part of a layer's result lies: runs of bytes, in up to TESTED_DIMENSIONS dimensions. */
struct region {
    int32_t output; /* the number of the output, or -1: the arena */
    int32_t offset, run;
    int32_t extents[TESTED_DIMENSIONS], strides[TESTED_DIMENSIONS]; /* of the runs, the last dimension the innermost */
};

struct layer {
    const char *name;
    const struct region *regions;
    int32_t count;
    uint32_t expected[TESTED_SAMPLES];
};

% for number, layer in enumerate(test["layers"]):
% if layer["regions"]:
static const struct region regions_${number}[] = {
% for output, offset, run, extents, strides in layer["regions"]:
    {${output}, ${offset}, ${run}, {${", ".join(map(str, extents))}}, {${", ".join(map(str, strides))}}},
% endfor
};
% endif
% endfor
static const struct layer layers[TESTED_LAYERS + 1] = {
% for number, layer in enumerate(test["layers"]):
    {"${layer["name"]}", ${f"regions_{number}" if layer["regions"] else 0}, ${len(layer["regions"])}, {${", ".join(f"{crc}u" for crc in layer["expected"])}}},
% endfor
};

% for kind in ("input", "output"):
% for number, array in enumerate(test[f"{kind}s"]):
static _Alignas(16) const unsigned char ${kind}_${number}[TESTED_SAMPLES][${array.shape[1]}] = {
% for row in array.tolist():
    {${", ".join(map(str, row))}},
% endfor
};
% endfor
% endfor
% for number, array in enumerate(test["outputs"]):
static _Alignas(16) unsigned char got_${number}[${array.shape[1]}];
% endfor
static const unsigned char *const expected[TESTED_SAMPLES][${P}_OUTPUTS + 1] = {
% for sample in range(test["samples"]):
    {${", ".join([f"output_{number}[{sample}]" for number in range(len(test["outputs"]))] + ["0"])}},
% endfor
};
static void *const outputs[${P}_OUTPUTS + 1] = {${", ".join([f"got_{number}" for number in range(len(test["outputs"]))] + ["0"])}};

static uint32_t found[TESTED_LAYERS + 1], cycles[TESTED_LAYERS + 1], begun;
static int pending = -1, is_active;
static uint32_t (*read_clock)(void);
static int (*put_byte)(int);

static void print(const char *text) {
    while (*text) put_byte(*text++);
}

static void print_number(uint32_t number) {
    if (number >= 10) print_number(number / 10);
    put_byte((int)('0' + number % 10));
}

static void print_sum(uint32_t sum) {
    for (int shift = 28; shift >= 0; shift -= 4) put_byte("0123456789abcdef"[sum >> shift & 15]);
}

static uint32_t check_region(const struct region *region, uint32_t crc) {
    const unsigned char *const base =
        region->output < 0 ? (const unsigned char *)${prefix}_default_instance.${base} : (const unsigned char *)outputs[region->output];
    int32_t at[TESTED_DIMENSIONS] = {0};
    for (;;) {
        int32_t offset = region->offset;
        int d = TESTED_DIMENSIONS - 1;
        for (int k = 0; k < TESTED_DIMENSIONS; k++) offset += at[k] * region->strides[k];
        crc = deeploy_crc32(crc, base + offset, (size_t)region->run);
        while (d >= 0 && ++at[d] == region->extents[d]) at[d--] = 0;
        if (d < 0) return crc;
    }
}

/* Takes the CRC of the layer that ended last, before another one begins. */
static void finish(void) {
    if (pending < 0) return;
    uint32_t crc = 0;
    for (int32_t k = 0; k < layers[pending].count; k++) crc = check_region(&layers[pending].regions[k], crc);
    found[pending] = crc;
    pending = -1;
}

/* A program that defines this function itself gets its own, and no layers are compared. */
#ifdef __GNUC__
__attribute__((weak))
#endif
void deeploy_profile(const char *layer, int index, int end) {
    (void)layer;
    if (!is_active || index < 0 || index >= TESTED_LAYERS) return;
    const uint32_t now = read_clock ? read_clock() : 0;
    if (end) {
        cycles[index] += now - begun;
        pending = index;
        return;
    }
    if (pending != index) finish();
    begun = read_clock ? read_clock() : 0;
}

% if not test["is_exact"]:
/* Of functions of the C library, the last bits differ between libraries: floats within 1e-4, integers within one step. */
% endif
static int is_equal(int sample, int number) {
    const struct deeploy_tensor *const tensor = &${prefix}_outputs[number];
    const unsigned char *const want = expected[sample][number], *const got = outputs[number];
% if test["is_exact"]:
    for (size_t i = 0; i < tensor->bytes; i++) {
        if (got[i] != want[i]) return 0;
    }
% else:
    size_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    for (size_t i = 0; i < count && tensor->bytes; i++) {
        const float a = deeploy_value(tensor, got, i), b = deeploy_value(tensor, want, i), size = b < 0 ? -b : b;
        const float allowed = tensor->type != DEEPLOY_FLOAT32 ? tensor->scale * 1.01f : 1e-4f * (size > 1 ? size : 1);
        if (!(a - b <= allowed && b - a <= allowed) && !(a != a && b != b) && !(a == b)) return 0;
    }
% endif
    return 1;
}

/* A line: deeploy-test NETWORK SAMPLE NUMBER NAME FOUND EXPECTED CYCLES VERDICT. */
static void print_layer(int sample, int index, int is_unchecked) {
    print("deeploy-test ${prefix} ");
    print_number((uint32_t)sample);
    put_byte(' ');
    print_number((uint32_t)index);
    put_byte(' ');
    print(layers[index].name);
    put_byte(' ');
    print_sum(found[index]);
    put_byte(' ');
    print_sum(layers[index].expected[sample]);
    put_byte(' ');
    print_number(cycles[index]);
    print(is_unchecked ? " unchecked\n" : found[index] == layers[index].expected[sample] ? " same\n" : " differs\n");
}

int ${prefix}_test(int (*put)(int), uint32_t (*clock)(void)) {
    const void *const inputs[TESTED_SAMPLES][${P}_INPUTS + 1] = {
% for sample in range(test["samples"]):
        {${", ".join([f"input_{number}[{sample}]" for number in range(len(test["inputs"]))] + ["0"])}},
% endfor
    };
    int first = -1, differences = 0;
    put_byte = put, read_clock = clock;
    print("deeploy-test ${prefix} begin ");
    print_sum(${test["id"]}u);
    print("\n");
    for (int sample = 0; sample < TESTED_SAMPLES; sample++) {
        for (int k = 0; k < TESTED_LAYERS; k++) found[k] = cycles[k] = 0;
% if dynamic_length:
        ${prefix}_seek(0);
% endif
        is_active = 1;
        const enum deeploy_status status = ${prefix}_run(inputs[sample], outputs);
        finish();
        is_active = 0;
        if (status) {
            print("deeploy-test ${prefix} failed ");
            print_number((uint32_t)status);
            print("\n");
            return -1;
        }
        for (int k = 0; k < TESTED_LAYERS; k++) {
            print_layer(sample, k, !layers[k].count);
            if (!layers[k].count || found[k] == layers[k].expected[sample]) continue;
            first = first < 0 ? k : first, differences++;
        }
        for (int k = 0; k < ${P}_OUTPUTS; k++) {
            if (is_equal(sample, k)) continue;
            differences++;
            print("deeploy-test ${prefix} output ");
            print_number((uint32_t)k);
            print(" differs\n");
        }
    }
    print("deeploy-test ${prefix} end ");
    print(first >= 0 ? "first difference in layer " : differences ? "outputs differ" : "all equal");
    if (first >= 0) print(layers[first].name);
    print("\n");
    return differences;
}
#endif
