"""Packages: built as their ecosystems build them, by the real tools or by what stands for these, and run on this machine."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend.packages import PACKAGES
from deeploy.backend.project import read_manifest
from deeploy.errors import UsageError
from deeploy.options import Package
from deeploy.report.self_test import read_log
from tests.e2e import decoders
from tests.models import save_graph
from tests.random.projects import base

MAIN = """
#include <cstdio>
#include "fall.h"
#include "rise.h"
static unsigned char arena[RISE_ARENA_BYTES + FALL_ARENA_BYTES + 64];
int main() {
    const float x[4] = {1, 2, 3, 4};
    float up[4], down[4];
    const void *inputs[] = {x};
    void *ups[] = {up}, *downs[] = {down};
    void *place = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(arena) + 31) & ~uintptr_t{31});
    if (rise_init(place, sizeof arena - 32) || rise_run(inputs, ups)) return 1;
    if (fall_init(place, sizeof arena - 32) || fall_run(inputs, downs)) return 2;
    std::printf("%g %g\\n", static_cast<double>(up[0]), static_cast<double>(down[3]));
}
"""
PRINTED = "20 -30\n"
# What ESP-IDF and Zephyr define for the CMake files of their components and modules, on top of plain CMake.
STANDS_FOR: dict[Package, str] = {
    "cmake": "",
    "esp-idf": """
function(idf_component_register)
  cmake_parse_arguments(IDF "" "" "SRCS;INCLUDE_DIRS;PRIV_INCLUDE_DIRS" ${ARGN})
  get_filename_component(COMPONENT_LIB ${CMAKE_CURRENT_LIST_DIR} NAME)
  set(COMPONENT_LIB ${COMPONENT_LIB} PARENT_SCOPE)
  add_library(${COMPONENT_LIB} STATIC ${IDF_SRCS})
  target_include_directories(${COMPONENT_LIB} PUBLIC ${IDF_INCLUDE_DIRS} PRIVATE ${IDF_PRIV_INCLUDE_DIRS})
  target_link_libraries(${COMPONENT_LIB} PUBLIC m)
endfunction()
""",
    "zephyr": """
set(CONFIG_DEEPLOY_RISE y)
set(CONFIG_DEEPLOY_FALL y)
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC "")
  target_link_libraries(${name} PUBLIC m)
endmacro()
function(zephyr_include_directories)
  target_include_directories(${ZEPHYR_CURRENT_LIBRARY} PUBLIC ${ARGN})
endfunction()
function(zephyr_library_include_directories)
  target_include_directories(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
""",
}


def save_product(folder: Path, name: str, weight: float) -> Path:
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [1, 4]) for end in ("x", "y")]
    weights = [numpy_helper.from_array(np.full((4, 4), weight, np.float32), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Identity", ["a"], ["y"])]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:], weights)
    path = folder / f"{name}.onnx"
    save_graph(graph, path)
    return path


def packed(folder: Path, kind: Package, target: str = "generic", self_test: Path | None = None) -> list[Path]:
    """Two networks, each a package of its own."""
    found = []
    for name, weight in (("rise", 2.0), ("fall", -3.0)):
        compiled = deeploy.compile({name: save_product(folder, name, weight)}, target, package=kind, self_test=self_test)
        compiled.write(folder / name)
        found.append(folder / name)
    return found


def done(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize("kind", STANDS_FOR)
def test_by_cmake(kind: Package, tmp_path: Path) -> None:
    """Two networks in one C++ program, by CMake itself; component and module by what their build systems add to it."""
    folders = packed(tmp_path, kind)
    (tmp_path / "main.cpp").write_text(MAIN)
    inside = "/zephyr" if kind == "zephyr" else ""
    lines = ["cmake_minimum_required(VERSION 3.13)", "project(firmware C CXX)", STANDS_FOR[kind]]
    lines += [f"add_subdirectory({folder.name}{inside} build-{folder.name})" for folder in folders]
    lines += ["add_executable(firmware main.cpp)", "target_link_libraries(firmware PRIVATE rise fall)"]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines))
    done(["cmake", "-S", ".", "-B", "build"], tmp_path)
    done(["cmake", "--build", "build"], tmp_path)
    assert done(["build/firmware"], tmp_path) == PRINTED


@pytest.mark.parametrize(("target", "tools"), [("generic", []), ("cortex_m4", ["arm-none-eabi-gcc", "qemu-system-arm"])])
def test_the_program_of_a_package_runs(target: str, tools: list[str], tmp_path: Path) -> None:
    """On this machine, or, with its toolchain file and linker script, under QEMU; and on a board, for which another stands."""
    missing = [tool for tool in ("cmake", *tools) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]}")
    np.savez(tmp_path / "in.npz", np.arange(4, dtype=np.float32)[None])
    (folder, _) = packed(tmp_path, "cmake", target, tmp_path / "in.npz")
    main = folder / "example/main.c"
    main.write_text(main.read_text().replace("input0[4];", "input0[4] = {1, 2, 3, 4.5};"))
    options = ["--toolchain", "../toolchain.cmake"] if tools else []
    done(["cmake", "-S", "rise/example", "-B", "build", *options], tmp_path)
    log = done(["sh", "-c", "cmake --build build --target run 2>&1"], tmp_path)
    assert "rise: 21000 21000 21000 21000\n" in log and read_log(log, read_manifest(folder))["passed"]
    if tools:
        command = ["cmake", "-S", "rise/example", "-B", "other", *options, "-DBOARD=abacus"]
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert refused.returncode and "Use one of: qemu_mps2, stm32f4" in refused.stderr
        done(["cmake", "-S", "rise/example", "-B", "board", *options, "-DBOARD=stm32f4"], tmp_path)
        done(["cmake", "--build", "board"], tmp_path)
        serial = "-display none -monitor none -serial null -serial stdio"
        run = f"qemu-system-arm -machine netduinoplus2 {serial} -kernel board/firmware"
        with subprocess.Popen(run.split(), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as emulator:
            assert emulator.stdout is not None
            limit = threading.Timer(60, emulator.kill)  # it does not end by itself
            limit.start()
            line = emulator.stdout.readline()
            limit.cancel()
            emulator.kill()
        assert line == "rise: 21000 21000 21000 21000\n"


def test_by_a_makefile(tmp_path: Path) -> None:
    packed(tmp_path, "makefile")
    (tmp_path / "main.cpp").write_text(MAIN)
    rules = """
include rise/rise.mk
include fall/fall.mk
firmware: main.cpp
	set -e; for f in $(RISE_SOURCES); do gcc -O1 $(RISE_CFLAGS) -c $$f -o rise-$$(basename $$f).o; done
	set -e; for f in $(FALL_SOURCES); do gcc -O1 $(FALL_CFLAGS) -c $$f -o fall-$$(basename $$f).o; done
	g++ -I$(RISE_DIR)include -I$(FALL_DIR)include main.cpp *.o -lm -o firmware
"""
    (tmp_path / "Makefile").write_text(rules)
    done(["make", "firmware"], tmp_path)
    assert done(["./firmware"], tmp_path) == PRINTED


def test_a_library_for_platformio(tmp_path: Path) -> None:
    """Built as ``library.json`` says: every source below ``srcDir``, with the flags, and ``includeDir`` for the program."""
    objects = []
    for folder in packed(tmp_path, "platformio"):
        said = json.loads((folder / "library.json").read_text())
        assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"]) and said["name"] == folder.name
        build, includes = said["build"], [f"-I{said['build']['includeDir']}"]
        assert all((folder / build["includeDir"] / header).is_file() for header in said["headers"])
        for number, source in enumerate(sorted((folder / build["srcDir"]).rglob("*.c"))):
            objects.append(f"{folder.name}{number}.o")
            done(["gcc", "-O1", *includes, *build["flags"], "-c", str(source), "-o", f"../{objects[-1]}"], folder)
    (tmp_path / "main.cpp").write_text(MAIN)
    done(["g++", "-Irise/include", "-Ifall/include", "main.cpp", *objects, "-lm", "-o", "firmware"], tmp_path)
    assert done(["./firmware"], tmp_path) == PRINTED


ARDUINO = """
#include <stdio.h>
static struct {
    void begin(long) {}
    void println(float value) { printf("%g\\n", value); }
    void println(const char *text) { puts(text); }
} Serial;
static void delay(int) {}
#include SKETCH
int main() { setup(); loop(); }
"""


@pytest.mark.parametrize("prefix", ["", "arm-none-eabi-"])
def test_a_library_for_arduino(prefix: str, tmp_path: Path) -> None:
    """Every source below ``src`` compiles with no other folder for headers, and the sketch runs."""
    if shutil.which(f"{prefix}g++") is None:
        pytest.skip(f"{prefix}g++ is not installed")
    folder = packed(tmp_path, "arduino", "cortex_m4" if prefix else "generic")[0] / "arduino"
    said = dict(line.split("=", 1) for line in (folder / "library.properties").read_text().splitlines())
    assert {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"} <= said.keys()
    flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"] if prefix else []
    objects = []
    for number, source in enumerate(sorted((folder / "src").rglob("*.c"))):
        objects.append(f"{number}.o")
        done([f"{prefix}gcc", *flags, "-Wall", "-Werror", "-O1", "-Isrc", "-c", str(source), "-o", objects[-1]], folder)
    (folder / "main.cpp").write_text(ARDUINO)
    (sketch,) = (folder / "examples").rglob("*.ino")
    command = [f"{prefix}g++", *flags, "-O1", "-Isrc", f'-DSKETCH="{sketch}"', "main.cpp"]
    if prefix:
        done([*command, "-c", "-o", "sketch.o"], folder)
    else:
        done([*command, *objects, "-lm", "-o", "sketch"], folder)
        assert done(["./sketch"], folder) == "0\n"


STRICT = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_one_file_and_one_header(compiler: str, tmp_path: Path) -> None:
    """Two projects of one file each in one program; nothing but these files is needed; what they define has a network's name in front."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    for folder in packed(tmp_path, "single"):
        assert sorted(path.name for path in (folder / "single").iterdir()) == [f"{folder.name}.c", f"{folder.name}.h"]
        for file in (folder / "single").iterdir():
            shutil.copy(file, tmp_path)
        done([compiler, *STRICT, "-c", f"{folder.name}.c"], tmp_path)
        symbols = {line.split()[-1] for line in done(["nm", "-g", "--defined-only", f"{folder.name}.o"], tmp_path).splitlines()}
        assert all(name.startswith((folder.name, "deeploy_network")) for name in symbols)
    (tmp_path / "main.cpp").write_text(MAIN)
    done(["g++", "main.cpp", "rise.o", "fall.o", "-lm", "-o", "firmware"], tmp_path)
    assert done(["./firmware"], tmp_path) == PRINTED


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.share(0.25)
def test_one_file_of_any_network_is_the_project(seed: int, tmp_path: Path) -> None:
    """Random graphs: the file compiles without warnings, and computes what the project does."""
    case = base(seed)
    onnx.save(case.model, tmp_path / "model.onnx")
    compiled = deeploy.compile(tmp_path / "model.onnx", package="single", certify=False, input_types=case.types)
    compiled.write(tmp_path / "out")
    out = tmp_path / "out"
    done(["gcc", *STRICT, "-c", "network.c", "-o", "../network.o"], out / "single")
    done(["gcc", "-Iinclude", "-Iruntime", "runtime/main.c", "network.o", "-lm", "-o", "one"], out)
    buffers = [compiled.network.program.buffers[name] for name in compiled.network.program.inputs]
    (out / "in").write_bytes(b"".join(case.inputs[b.tensor].astype(b.dtype.numpy).tobytes() for b in buffers))
    done(["make", "-s", "CFLAGS=-O1"], out)
    for program in ("./one", "build/application"):
        done([program, "network", "in", f"{Path(program).name}.bin", "1"], out)
    assert (out / "one.bin").read_bytes() == (out / "application.bin").read_bytes()


def test_one_file_of_several_networks(tmp_path: Path) -> None:
    """Networks with equal layers, and others that share states."""
    deeploy.compile({name: save_product(tmp_path, name, 2.0) for name in ("rise", "fall")}, package="single").write(tmp_path / "out")
    (tmp_path / "out/single/main.cpp").write_text(MAIN.replace('#include "fall.h"\n', "").replace("down[3]", "down[0]"))
    done(["gcc", *STRICT, "-c", "rise.c"], tmp_path / "out/single")
    done(["g++", "main.cpp", "rise.o", "-lm", "-o", "firmware"], tmp_path / "out/single")
    assert done(["./firmware"], tmp_path / "out/single") == "20 20\n"
    models = {name: decoders.decoder(tmp_path, rows, name=name) for name, rows in (("prompt", 4), ("step", 1))}
    deeploy.compile(models, context=16, package="single", certify=False).write(tmp_path / "states")
    done(["gcc", *STRICT, "-c", "prompt.c"], tmp_path / "states/single")
    with pytest.raises(UsageError, match="networks that share states have no crate"):
        deeploy.compile(models, context=16, package="cargo", certify=False).write(tmp_path / "crate")


RUST = """
use fall::{Arena, Error, Network};
fn main() -> Result<(), Error> {
    let (mut first, mut second) = (rise::Arena::new(), Arena::new());
    let (mut rise, mut fall) = (rise::Network::new(&mut first).unwrap(), Network::new(&mut second)?);
    let x = [[1.0, 2.0, 3.0, 4.0]];
    let (mut up, mut down) = ([[0f32; 4]; 1], [[0f32; 4]; 1]);
    rise.run(&x, &mut up).unwrap();
    fall.run(&x, &mut down)?;
    println!("{} {}", up[0][0], down[0][3]);
    Ok(())
}
"""


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
@pytest.mark.parametrize("target", ["generic", "cortex_m4"])  # C for a chip computes the same on this machine
def test_a_crate(target: str, tmp_path: Path) -> None:
    """Two crates without a standard library in one program, built by Cargo and the compiler for C alone."""
    packed(tmp_path, "cargo", target)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.rs").write_text(RUST)
    head = '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
    (tmp_path / "Cargo.toml").write_text(head + 'rise = { path = "rise" }\nfall = { path = "fall" }\n')
    assert done(["cargo", "run", "-q", "--offline"], tmp_path) == PRINTED


def test_names_of_a_module(tmp_path: Path) -> None:
    """Zephyr finds the module's CMake file and Kconfig where ``module.yml`` says; both speak of the same symbol."""
    folder = packed(tmp_path, "zephyr")[0]
    said = dict(line.split(": ") for line in (folder / "zephyr/module.yml").read_text().splitlines() if ": " in line)
    assert said["name"] == "rise" and (folder / said["  cmake"] / "CMakeLists.txt").is_file()
    (symbol,) = re.findall(r"^config (\w+)$", (folder / said["  kconfig"]).read_text(), re.MULTILINE)
    assert f"if(CONFIG_{symbol})" in (folder / "zephyr/CMakeLists.txt").read_text()


def test_what_is_no_package(tmp_path: Path) -> None:
    path = save_product(tmp_path, "rise", 2.0)
    with pytest.raises(UsageError, match="runtime that moves data"):
        deeploy.compile(path, "siracusa", package="cmake")
    with pytest.raises(UsageError, match='package="rpm" is unknown'):
        deeploy.compile(path, package="rpm")  # type: ignore[arg-type]
    assert all(deeploy.compile(path, package=kind).package == kind for kind in PACKAGES)


def test_code_constants_and_arena_lie_where_macros_say(tmp_path: Path) -> None:
    (folder,) = packed(tmp_path, "makefile")[:1]
    places = {name: f'__attribute__((section(".{name.lower()}")))' for name in ("DEEPLOY_CODE", "DEEPLOY_CONSTANTS", "DEEPLOY_ARENA")}
    flags = [f"-D{name}={attribute}" for name, attribute in places.items()]
    done(["make", "lib", f"CFLAGS=-O1 -DDEEPLOY_STATIC_ARENA {' '.join(repr(flag) for flag in flags)}"], folder)
    symbols = done(["objdump", "-t", "build/libnetwork.a"], folder)
    assert re.search(r"\.deeploy_code\s+\w+\s+rise_kernel_", symbols)
    assert re.search(r"\.deeploy_constants\s+\w+\s+rise_constant_", symbols)
    header = (folder / "include/rise.h").read_text()
    assert re.search(r'#define RISE_MODEL_SHA256 "[0-9a-f]{64}"', header)


VALUES = """
#include "deeploy_values.h"
void quantize(const struct deeploy_tensor *t, const float *v, void *d) { deeploy_quantize(t, v, d); }
void dequantize(const struct deeploy_tensor *t, const void *d, float *v) { deeploy_dequantize(t, d, v); }
size_t largest(const struct deeploy_tensor *t, const void *d) { return deeploy_largest(t, d); }
void audio(const struct deeploy_tensor *t, const int16_t *s, void *d) { deeploy_audio(t, s, d); }
void image(const struct deeploy_tensor *t, const uint8_t *p, const float *m, const float *s, int last, void *d) {
    deeploy_image(t, p, m, s, last, d);
}
"""
TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float32]


class Tensor(ctypes.Structure):
    """``struct deeploy_tensor``."""

    _fields_ = [
        *(("name", ctypes.c_char_p), ("type", ctypes.c_int), ("rank", ctypes.c_int), ("shape", ctypes.POINTER(ctypes.c_int32))),
        *(("bytes", ctypes.c_size_t), ("scale", ctypes.c_float), ("zero_point", ctypes.c_int32)),
    ]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("values")
    project = packed(folder, "makefile")[0]
    (folder / "values.c").write_text(VALUES)
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{project}/include"]
    done([os.environ.get("CC", "gcc"), *flags, "values.c", "-lm", "-o", "v.so"], folder)
    return ctypes.CDLL(str(folder / "v.so"))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def tensor(dtype: type, shape: list[int], scale: float = 1.0, zero: int = 0) -> Tensor:
    extents = (ctypes.c_int32 * len(shape))(*shape)
    return Tensor(b"x", TYPES.index(dtype), len(shape), extents, int(np.prod(shape)) * np.dtype(dtype).itemsize, scale, zero)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
def test_values_are_quantised_as_onnx_says(values: ctypes.CDLL, dtype: type) -> None:
    scale, zero = (0.25, 3) if dtype is not np.float32 else (1.0, 0)
    real = np.array([0, 0.125, 0.375, -0.125, 0.6, -7.3, 40, -40, 1e7, -1e7, 3.1e9], np.float32)
    one, stored, back = tensor(dtype, [11], scale, zero), np.zeros(11, dtype), np.zeros(11, np.float32)
    values.quantize(ctypes.byref(one), pointer(real), pointer(stored))
    if dtype is np.float32:
        expected = real
    else:
        limits = np.iinfo(dtype)
        expected = np.clip(np.rint(real.astype(np.float64) / scale) + zero, limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(stored, expected)
    values.dequantize(ctypes.byref(one), pointer(stored), pointer(back))
    np.testing.assert_array_equal(back, ((expected.astype(np.float64) - zero) * scale).astype(np.float32))
    assert values.largest(ctypes.byref(one), pointer(stored)) == int(np.argmax(expected))


@pytest.mark.parametrize("last", [0, 1])
def test_images_and_sound(values: ctypes.CDLL, last: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 4, 3), np.uint8)
    mean, deviation = np.array([120, 110, 100], np.float32), np.array([60, 50, 70], np.float32)
    one = tensor(np.int8, [1, 5, 4, 3] if last else [1, 3, 5, 4], 0.02, -1)
    stored = np.zeros((5, 4, 3) if last else (3, 5, 4), np.int8)
    values.image(ctypes.byref(one), pointer(pixels), pointer(mean), pointer(deviation), last, pointer(stored))
    real = (pixels.astype(np.float32) - mean) / deviation
    expected = np.clip(np.rint(real.astype(np.float64) / np.float64(np.float32(0.02))) - 1, -128, 127)
    np.testing.assert_array_equal(stored, expected if last else expected.transpose(2, 0, 1))
    samples = np.array([0, 32767, -32768, 100], np.int16)
    sound = np.zeros(4, np.float32)
    values.audio(ctypes.byref(tensor(np.float32, [1, 4])), pointer(samples), pointer(sound))
    np.testing.assert_array_equal(sound, samples.astype(np.float32) / 32768)
