"""How deep stacks can become is read from linked programs: exactly, with the chain of functions, and a build fails that has too little."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deeploy import api
from deeploy.errors import FitError, UnsupportedError
from deeploy.options import Options
from deeploy.target import load
from tests.command import deeploy_cli
from tests.models import save_graph

from .conftest import SIMULATED, absent

GCC = "riscv64-unknown-elf-gcc"
OBJDUMP = "riscv64-unknown-elf-objdump"
STACK = SIMULATED.parent / "stack.py"

# Frames: begin 16, middle 32, far 4096 + 16, leaf none; table and by_pointer 16; entry 64.
PROGRAM = """
    .text
    .macro function name
    .globl \\name
    .type \\name, @function
    \\name:
    .endm
function _start
    addi sp, sp, -16
    call middle
    call shallow
    j end
function middle
    addi sp, sp, -32
    call far
    call leaf
    addi sp, sp, 32
    ret
function far
    addi sp, sp, -16
    li t0, -4096
    add sp, sp, t0
    call leaf
    li t0, 4096
    add sp, sp, t0
    addi sp, sp, 16
    tail leaf
function shallow
    addi sp, sp, -48
    sw sp, 8(sp)
    sw sp, 4(a0)
    addi sp, sp, 48
    ret
function leaf
    ret
function end
    j end
function giver
    addi sp, sp, -16
    la a0, given
    call fork
    addi sp, sp, 16
    ret
function other
    la a0, deeper
    tail fork
function fork
    addi sp, sp, -16
    jalr a0
    addi sp, sp, 16
    ret
function given
    addi sp, sp, -32
    addi sp, sp, 32
    ret
function deeper
    addi sp, sp, -64
    addi sp, sp, 64
    ret
function worker
    addi sp, sp, -16
    jalr a1
    j worker
function nobody
    addi sp, sp, -16
    jalr a1
    ret
function again
    addi sp, sp, -16
    call back
    addi sp, sp, 16
    ret
function back
    tail again
function padded
    addi sp, sp, -16
    call before
    addi sp, sp, 16
    ret
function before
    ret
    nop
    .balign 16
function after
    addi sp, sp, -64
    call padded
    addi sp, sp, 64
    ret
function array
    sub sp, sp, a0
    call leaf
    ret
function chooses
    addi sp, sp, -16
    jr a5
    call middle
    addi sp, sp, 16
    ret
"""


@pytest.fixture(scope="module", autouse=True)
def toolchain() -> None:
    if shutil.which(GCC) is None:
        absent(f"no {GCC}: install Debian's gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.S").write_text(PROGRAM)
    flags = ["-march=rv32imafc", "-mabi=ilp32f", "-nostdlib", "-nostartfiles"]
    subprocess.run([GCC, *flags, folder / "program.S", "-o", folder / "program.elf"], check=True)
    return folder / "program.elf"


def check(program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(STACK), str(program), "--objdump", OBJDUMP, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("function", "needed", "path"),
    [
        ("_start", 16 + 32 + 4112, "_start 16 > middle 32 > far 4112 > leaf 0"),
        ("shallow", 48, "shallow 48"),
        ("after", 64 + 16, "after 64 > padded 16 > before 0"),  # what aligns functions is not reached from the one before
        ("giver", 16 + 16 + 32, "giver 16 > fork 16 > given 32"),
        ("other", 16 + 64, "other 0 > fork 16 > deeper 64"),
        ("chooses", 16 + 32 + 4112, "chooses 16 > middle 32 > far 4112 > leaf 0"),
    ],
)
def test_the_deepest_path_is_exact(program: Path, function: str, needed: int, path: str) -> None:
    """Frames of any size, last calls whose caller has left the stack, pointers by who passes them; four bytes stay as a guard."""
    enough = check(program, "--stack", f"one={function}:{needed + 4}")
    assert (enough.returncode, enough.stderr) == (0, "")
    assert enough.stdout == f"one: {needed + 4} of {needed + 4} bytes: {path}\n"
    short = check(program, "--stack", f"one={function}:{needed + 3}")
    assert short.returncode == 1
    assert short.stderr == f"error: the stack of one needs {needed + 4} bytes, larger than the {needed + 3} that it has: {path}\n"


def test_a_core_that_is_given_work_reaches_what_is_forked(program: Path) -> None:
    done = check(program, "--core", "one=worker:84", "--pointers", "worker=fork", "--arena", "1000")
    assert done.stdout == "one: 84 of 84 bytes: worker 16 > deeper 64\n" and done.returncode == 0
    done = check(program, "--core", "one=worker:80", "--pointers", "worker=fork", "--arena", "1000")
    assert done.returncode == 1
    assert done.stderr.endswith("worker 16 > deeper 64; leave more of L1 to the stacks: --l1 872 or less\n")
    done = check(program, "--stack", "one=worker:999", "--callers", "worker=fork")
    assert done.stdout == "one: 100 of 999 bytes: worker 16 > other 0 > fork 16 > deeper 64\n"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("again", "a function calls itself: again > back > again"),
        ("array", "the frame of array has no fixed size: sub sp,sp,a0"),
        ("nobody", "nobody calls through a pointer that nobody is seen to pass"),
        ("absent", "there is no function absent"),
    ],
)
def test_a_depth_that_cannot_be_told_is_an_error(program: Path, function: str, reason: str) -> None:
    done = check(program, "--stack", f"one={function}:100000")
    assert (done.returncode, done.stderr) == (1, f"error: the depth of a stack is not known: {reason}\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (64, 64)) for name in "xy"]
    constant = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "g", shape[:1], shape[1:], [constant])
    save_graph(graph, tmp_path / "model.onnx")
    api.compile(tmp_path / "model.onnx", "siracusa").write(tmp_path / "project")
    return tmp_path / "project"


def build(project: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """Built for the chip with the least that the target reserves for stacks."""
    reserved = f"L1_RESERVED_BYTES={load('siracusa').memory('L1').reserved}"
    command = ["make", "-s", "-C", str(project), "PLATFORM=bare", reserved, f"PYTHON={sys.executable}", *variables]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def depths(project: Path) -> dict[str, tuple[int, int, str]]:
    """By stack: bytes needed, bytes there, the path."""
    lines = (project / "build" / "application.stacks").read_text().splitlines()
    found = [re.fullmatch(r"(.*): (\d+) of (\d+) bytes: (.*)", line) for line in lines]
    return {m[1]: (int(m[2]), int(m[3]), m[4]) for m in found if m}


def _check_sizes(project: Path) -> None:
    """What the target reserves for a core is its stack, and its part of what the runtime shares; core 0 has 128 bytes more."""
    core_0, core, controller = (there for _, there, _ in depths(project).values())
    assert core == 944 and 944 + 128 <= core_0 < 944 + 256 and controller == 8192


def deepen(project: Path) -> None:
    """Gives the kernel a large frame."""
    source = next((project / "src" / "kernels").glob("*.c"))
    name = source.stem
    source.write_text(
        source.read_text().replace(f"#define KERNEL DEEPLOY_CODE {name}", "#define KERNEL inner")
        + f"void {name}(const struct matmul *k) {{ volatile char room[6000]; room[k->rows] = 0; inner(k); (void)room[0]; }}\n"
    )
    (project / "kernels" / "portable" / "matmul.h").open("a").write("void inner(const struct matmul *k);\n")


def test_a_function_that_is_too_deep_fails_the_build_and_is_named(project: Path) -> None:
    assert build(project).returncode == 0
    _check_sizes(project)
    deepen(project)
    done = build(project)
    assert done.returncode != 0 and not (project / "build" / "application.elf").exists()
    line = next(line for line in done.stderr.splitlines() if "a core" in line)
    (said,) = re.findall(r"needs (\d+) bytes, larger than the 944 that it has: ", line)
    needed = int(said)
    assert needed > 6000 and re.search(r"cluster_worker \d+ > team_0 \d+ > layer_product \d+ > \w*_matmul\w+ 6\d\d\d > ", line)
    assert line.endswith(f"--l1 {256 * 1024 - 8192 - 8 * (-(-(needed - 944) // 16) * 16)} or less")
    assert build(project).returncode != 0, "nothing is left that a second make would take for built"
    assert build(project, "CHECK_STACKS=0").returncode == 0


@pytest.mark.slow
def test_the_command_that_runs_it_ends_with_status_3(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deepen(project)
    makefile = project / "Makefile"
    makefile.write_text(re.sub(r"L1_RESERVED_BYTES := \d+", "L1_RESERVED_BYTES := 8192", makefile.read_text()))
    np.savez(tmp_path / "inputs.npz", x=np.zeros((64, 64), np.float32))
    (tmp_path / "gvsoc").write_text("#!/bin/sh\n")
    (tmp_path / "gvsoc").chmod(0o755)
    monkeypatch.setenv("GVSOC", str(tmp_path / "gvsoc"))
    done = deeploy_cli("run", project, "--on", "gvsoc", "--inputs", tmp_path / "inputs.npz")
    assert done.returncode == 3
    first, second = done.stderr.strip().splitlines()
    assert "does not fit: the stack of core 0 needs " in first and re.search(r"_matmul\w*_f32_f32_f32 6", first)
    assert re.fullmatch(r" *Leave more of L1 to the stacks: --l1 \d+ or less", second)


@pytest.mark.parametrize("variables", [("CFLAGS=-O0",), ("CFLAGS=-Os",), ("COMPILER=clang",)], ids=" ".join)
def test_whatever_compiled_it_the_kernel_is_found(project: Path, variables: tuple[str, ...]) -> None:
    if "COMPILER=clang" in variables and shutil.which("clang") is None:
        absent("no clang: install Debian's clang")
    deepen(project)
    done = build(project, *variables, "L1_RESERVED_BYTES=65536")
    assert done.returncode == 0, done.stderr
    for needed, there, path in list(depths(project).values())[:2]:
        assert 6000 < needed < there and "_product" in path and re.search(r"matmul\w*_f32", path)


CLUSTER, ALL = Options(engines=("cluster",)), Options()
NETWORKS = {
    "dialect/Models/CCT/Int/ICCT": CLUSTER,
    "dialect/Models/MLPerf/ImageClassification": ALL,
    "mlperf_tiny/ic_int8_qdq_pc": CLUSTER,
    "mlperf_tiny/kws_fp32": CLUSTER,
    "hf/bert_tiny_int8": CLUSTER,
}


def _free(model: Path) -> dict[str, int]:
    """Extents for what the file leaves open: one sample, 64 of anything else."""
    axes = [
        axis for value in onnx.load(model, load_external_data=False).graph.input for axis in enumerate(value.type.tensor_type.shape.dim)
    ]
    return {axis.dim_param: 64 if index else 1 for index, axis in axes if axis.dim_param}


def _within(shared_models: Path, folder: Path, name: str, options: Options) -> None:
    inputs = shared_models / name / "inputs.npz"
    model = shared_models / name / "network.onnx"
    dims = {} if inputs.exists() else _free(model)
    compiled = api.compile(model, "siracusa", dims=dims, inputs=inputs if inputs.exists() else None, **options.given())
    compiled.write(folder / "project")
    done = build(folder / "project")
    assert done.returncode == 0, done.stderr
    _check_sizes(folder / "project")
    found = depths(folder / "project")
    assert all(0 < needed <= there for needed, there, _ in found.values())
    forks = any(re.search(r"\brt_fork\([2-8],", source.read_text()) for source in (folder / "project" / "src").glob("*.c"))
    assert (re.search(r"cluster_worker \d+ > (team_\d+|\w+_share)\b", found["a core"][2]) is not None) == forks, "what is forked is found"


@pytest.mark.parametrize("name", NETWORKS)
def test_stacks_that_the_target_reserves_are_deep_enough(shared_models: Path, tmp_path: Path, name: str) -> None:
    """Also where a plan leaves nothing of L1 but what the target reserves."""
    _within(shared_models, tmp_path, name, NETWORKS[name])


@pytest.mark.slow
@pytest.mark.parametrize("options", [CLUSTER, ALL], ids=["cluster", "cluster and npu"])
def test_all_networks_and_kernels_keep_within_their_stacks(shared_models: Path, tmp_path: Path, options: Options) -> None:
    networks = sorted(path.parent for path in shared_models.rglob("network.onnx"))
    refused = []
    for index, path in enumerate(networks):
        try:
            _within(shared_models, tmp_path / str(index), str(path.relative_to(shared_models)), options)
        except (FitError, UnsupportedError) as error:
            refused.append(f"{path.name}: {error}")
        shutil.rmtree(tmp_path / str(index), ignore_errors=True)
    assert len(networks) - len(refused) > 50, refused
