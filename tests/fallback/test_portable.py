"""Generated C becomes a kernel's file: arrays move to scratch memory that is counted, and what cannot be a kernel is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deeploy.fallback.portable import HEADER, GeneratedCode, make_portable

GENERATED = """/* a comment with a name */
#include <stdint.h>

#ifndef idx_t
#define idx_t int32_t
#endif
#ifndef EMX_NODE_FN
#define EMX_NODE_FN static inline
#endif

static inline int helper(const int row[3]) {
    int copy[3];
    for (int i = 0; i < 3; ++i) {
        copy[i] = row[i] + 1;
    }
    return copy[0] + copy[1] + copy[2];
}

EMX_NODE_FN void node0_example(const int input0[2][3], int output[2]) {
    int table[2][3];
    int64_t sums[2 * 1] = {0};
    const int weight[2] = {1, 10};
    for (idx_t i = 0; i < 2; ++i) {
        for (idx_t j = 0; j < 3; ++j) {
            table[i][j] = input0[i][j] * weight[i];
        }
        sums[i] += helper(table[i]);
        output[i] = (int)sums[i] + (int)sizeof(table);
    }
}

_Bool fallback_model_load(const char *path) {
    (void)path;
    return 1;
}

void fallback_model(const int x0[restrict 2][3], int y0[restrict 2]) {
    node0_example(x0, y0);
}
"""

MAIN = """#include <stdio.h>
#define KERNEL kernel
#include "kernel.c"
int main(void) {
    static unsigned char scratch[%d] = {1, 2, 3};
    const int x[2][3] = {{1, 2, 3}, {4, 5, 6}};
    int y[2];
    const void *const inputs[] = {x};
    void *const outputs[] = {y};
    kernel(&(struct fallback){.inputs = inputs, .outputs = outputs, .scratch = scratch});
    printf("%%d %%d", y[0], y[1]);
}
"""


def test_arrays_of_functions_become_scratch_memory_that_is_counted(tmp_path: Path) -> None:
    code = make_portable(GENERATED, 1, 1)
    assert isinstance(code, GeneratedCode)
    assert code.scratch == 16 + 24 + 16  # 12, 24 and 16 bytes, each in whole words of 8
    assert "a comment" not in code.text and "_load" not in code.text
    (tmp_path / "kernel.c").write_text(code.text)
    (tmp_path / "fallback.h").write_text(HEADER)
    (tmp_path / "main.c").write_text(MAIN % code.scratch)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-fsanitize=address,undefined", "-fstack-usage"]
    subprocess.run(["gcc", *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{1 + 2 + 3 + 3 + 24} {40 + 50 + 60 + 3 + 24}"


def test_what_needs_no_memory_is_passed_none() -> None:
    text = "#include <stdint.h>\nvoid fallback_model(const int x0[restrict 1], int y0[restrict 1]) {\n    y0[0] = x0[0];\n}\n"
    code = make_portable(text, 1, 1)
    assert isinstance(code, GeneratedCode) and code.scratch == 0 and "kernel_scratch" not in code.text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("int copy[3];", "int *copy = malloc(12);", "malloc"),
        ("#include <stdint.h>", '#include "other.h"', "include"),
        ("int copy[3];", "int copy[rows];", "no fixed size"),
        ("const int x0[restrict 2][3], ", "const int x0[restrict 2][3], int n, ", "other operands"),
        ("int copy[3];", f"int copy[{3 * 40}] = {{{', '.join('1' * 120)}}};", "480 bytes of generated arrays with initial values"),
    ],
)
def test_what_cannot_be_a_kernel_is_refused(old: str, new: str, reason: str) -> None:
    found = make_portable(GENERATED.replace(old, new, 1), 1, 1)
    assert isinstance(found, str) and reason in found


def test_the_linker_sees_the_kernel_alone(tmp_path: Path) -> None:
    """Data, declared before or not, and functions whose heads take several lines; what is inside of them stays as it is."""
    head, _, rest = GENERATED.partition("static inline int helper")
    more = """extern const float weight[3];
const float weight[3] = {
1.0f, 2.0f,
3.0f
};
#define TWICE(x) \\
2 * (x)
const char *text = "){";
#define BEGIN {
int between = 1;
#define END }
int row[1] = BEGIN 1 END;
typedef int number;
int sum(
const int *x,
int n
) {
int result = 0;
for (int i = 0; i < TWICE(n) / 2; ++i) result += x[i] + (int)weight[i] + (text == 0);
return result;
}
number
later(void) {
return 1;
}
"""
    code = make_portable(f"{head}{more}static inline int helper{rest}", 1, 1)
    assert isinstance(code, GeneratedCode)
    (tmp_path / "kernel.c").write_text("#define KERNEL kernel\n" + code.text)
    (tmp_path / "fallback.h").write_text(HEADER)
    subprocess.run(["gcc", "-std=c11", "-c", "kernel.c"], cwd=tmp_path, check=True)
    seen = subprocess.run(["nm", "-g", "--defined-only", "kernel.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in seen.splitlines()] == ["kernel"]
