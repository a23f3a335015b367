"""One kernel, one node, compiled and run: its C against its NumPy reference.

``check`` takes the way a compiled network takes (signature, layout of constants, geometry, instance, template), for a
single call with buffers of their own. Every buffer lies on the heap with exactly its size and the C runs under ASan and
UBSan, so that a read or write beyond an operand is an error. What is compiled is kept: instances, and the programs that call them.

    check(
        CONV2D,                                                     # a deeploy.ir.kernel.Kernel
        {"x": x, "w": w, "mul": mul, "add": add},                   # body's inputs, then the epilogue's operands
        outputs="s8",                                               # short name of the output's type (a tuple of several)
        attrs={"epilogue": ("requantise",), "shift": 12, "low": -128, "high": 127, "strides": (1, 1), ...},
    )
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mako.lookup import TemplateLookup

from deeploy.execution.runners import objects
from deeploy.ir import epilogue, interface
from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.views import Access
from deeploy.planning.binding import kernels as bind
from deeploy.planning.program import Call, Operand
from deeploy.planning.tiling.loops import Footprints
from deeploy.resources import cache_folder, resource, write_whole
from tests import samples

KERNELS = resource("kernels") / "portable"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{KERNELS}")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
OBJECT = ("-O1", "-g", *SANITIZE)
CALLER = ("-O0", *SANITIZE, *(["-fuse-ld=gold"] if shutil.which("ld.gold") else []))  # it runs once, and is built in half the time
ACCEPTED = (("gcc", "-O3"), ("clang", "-O1"))  # compilers that must not warn of an instance either
WARNED = 0.25  # the share of instances that these compile
POISON = 0xA5
GAP = 3  # elements between the rows of strided operands

_lookup = TemplateLookup([str(resource("templates"))], strict_undefined=True)


def make_node(
    kernel: Kernel,
    inputs: Mapping[str, np.ndarray],
    outputs: str | tuple[str, ...] = "s32",
    attrs: Mapping[str, Any] | None = None,
    constants: tuple[str, ...] = (),
) -> Node:
    """The node of ``check``; the shapes of its outputs are those of the reference's results."""
    attrs = dict(attrs or {})
    body = [name.rstrip("?") for name in kernel.inputs]
    extra = epilogue.stage_operands(tuple(attrs.get("epilogue", ())))
    unknown = inputs.keys() - {*body, *extra}
    if unknown:
        raise KeyError(f"kernel {kernel.name} has no operand {sorted(unknown)}")
    while body and body[-1] not in inputs:
        body.pop()
    fixed = {*kernel.constants, *kernel.layouts, *extra, *constants}
    tensors = []
    for name in (*body, *extra):
        array = inputs.get(name)
        if array is None:
            tensors.append(None)
            continue
        tensors.append(Tensor(name, array.shape, DType.of(array.dtype), array if name in fixed else None))
    codes = (outputs,) if isinstance(outputs, str) else outputs
    untyped = tuple(Tensor(n, (), DType(code)) for n, code in zip(kernel.outputs, codes, strict=True))
    node = Node("node", kernel.op, tuple(tensors), untyped, attrs)
    results = _tuple(kernel.reference(node, *(inputs.get(name) for name in body)))
    shaped = tuple(Tensor(t.name, r.shape, t.dtype) for t, r in zip(untyped, results, strict=True))
    return Node("node", kernel.op, tuple(tensors), shaped, attrs)


def expected(kernel: Kernel, node: Node, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The reference's results, after the epilogue, in the types of the node's outputs."""
    body = [name.rstrip("?") for name in kernel.inputs][: len(node.inputs) - len(epilogue.stage_operands(node.epilogue))]
    results = _tuple(kernel.reference(node, *(inputs.get(name) for name in body)))
    final = [epilogue.apply_stages(node, r, dict(inputs)) for r in results]
    for value, tensor in zip(final, node.outputs, strict=True):
        if tensor.dtype.is_integer:
            low, high = tensor.dtype.range
            assert value.size == 0 or (value.min() >= low and value.max() <= high), "the case overflows its output type"
    return tuple(v.astype(t.dtype.numpy) for v, t in zip(final, node.outputs, strict=True))


def run(kernel: Kernel, node: Node, inputs: Mapping[str, np.ndarray], strided: bool = False) -> tuple[np.ndarray, ...]:
    """Compile and run the call of ``node`` and return its outputs.

    Args:
        strided: put gaps between the outer axes of every operand that the kernel declares as strided.
    """
    problems = bind.list_mismatches(kernel, node)
    assert not problems, f"kernel {kernel.name} does not fit: {problems}"
    names = bind.operand_names(kernel, node)
    assert names is not None
    stored = {n: inputs[n] for n, t in zip(names, node.inputs, strict=True) if t is not None}
    stored |= {n: layout.encode(inputs[n], node) for n, layout in kernel.layouts.items() if n in stored}
    stored = {n: array for n, array in stored.items() if array is not None}
    geometry = bind.bound_geometry(kernel, node, stored)
    results = dict(zip(kernel.outputs, node.outputs, strict=True))
    shapes = {n: a.shape for n, a in stored.items()} | {n: t.shape for n, t in results.items()}
    types = {n: DType.of(a.dtype) for n, a in stored.items()} | {n: t.dtype for n, t in results.items()}
    dense = {n: kernel.strided.get(n, len(s)) if strided else len(s) for n, s in shapes.items()}
    access = {n: _access(shape, dense[n]) for n, shape in shapes.items()}
    scratch = {n: found.total(node, geometry.extents) for n, found in kernel.scratch.items()}
    call = Call(node, kernel, geometry, {n: Operand(n, a) for n, a in access.items()}, "call", {n: n for n in scratch})
    memory = {n: _spread(a, access[n]) for n, a in stored.items()}
    memory |= {n: np.full(_span(access[n]) * types[n].bytes, POISON, np.uint8).view(types[n].numpy) for n in results}
    memory |= {n: np.zeros(size, np.uint8) for n, size in scratch.items()}
    got = _execute(call, types, memory, tuple(results))
    return tuple(_gather(got[n], access[n], t.dtype) for n, t in results.items())


def check(
    kernel: Kernel,
    inputs: Mapping[str, np.ndarray],
    outputs: str | tuple[str, ...] = "s32",
    attrs: Mapping[str, Any] | None = None,
    constants: tuple[str, ...] = (),
    strided: bool = False,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> tuple[np.ndarray, ...]:
    """Assert that the kernel's C gives what its reference and the epilogue give: integers bit for bit, floats within a tolerance.

    Args:
        inputs: every operand by name, in graph layout; the NumPy type is the element type. Leave absent optional ones out.
        outputs: short names of the output types ("s8", "u8", "s32", "f32" ...), one per output of the kernel.
        attrs: the node's attributes, ``epilogue`` included.
        constants: body operands that are constant, beside those that the declaration demands or lays out.
        strided: put gaps between the outer axes of operands that the kernel declares as strided.

    Returns:
        the outputs of the C code, in the order of ``kernel.outputs``.
    """
    node = make_node(kernel, inputs, outputs, attrs, constants)
    wanted = expected(kernel, node, inputs)
    got = run(kernel, node, inputs, strided)
    for have, want, tensor in zip(got, wanted, node.outputs, strict=True):
        if tensor.dtype.is_float:
            np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(have, want)
    return got


def _tuple(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)


def _access(shape: tuple[int, ...], dense: int) -> Access:
    """Row-major order with GAP unused elements behind every row of all but the ``dense`` innermost axes."""
    strides = [1] * len(shape)
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
        if axis > 0 and len(shape) - axis >= dense and dense < len(shape):
            step += GAP
    return Access(shape, 0, tuple(strides))


def _span(access: Access) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(access.shape, access.strides, strict=True))


def _indices(access: Access) -> np.ndarray:
    grid = np.zeros(access.shape, np.int64)
    for axis, stride in enumerate(access.strides):
        grid += np.arange(access.shape[axis]).reshape([-1 if i == axis else 1 for i in range(grid.ndim)]) * stride
    return grid


def _spread(array: np.ndarray, access: Access) -> np.ndarray:
    flat = np.full(_span(access) * array.itemsize, POISON, np.uint8).view(array.dtype)
    flat[_indices(access)] = array
    return flat


def _gather(flat: np.ndarray, access: Access, dtype: DType) -> np.ndarray:
    places = _indices(access)
    gaps = np.ones(flat.shape, bool)
    gaps[places] = False
    assert (flat[gaps].view(np.uint8) == POISON).all(), "the kernel wrote between the rows of its output"
    return np.asarray(flat[places], dtype.numpy)


def _execute(call: Call, types: Mapping[str, DType], memory: Mapping[str, np.ndarray], outputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    instance = interface.make_instance(call, types)
    text = _main(call, instance, types, memory, outputs)
    program = _program(text, instance)
    with tempfile.TemporaryDirectory(dir=_folder()) as work:
        given, taken = Path(work) / "in.bin", Path(work) / "out.bin"
        given.write_bytes(b"".join(array.tobytes() for array in memory.values()))
        done = subprocess.run([program, given, taken], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{instance.name} failed:\n{text}\n{done.stderr}"
        data = taken.read_bytes()
    result = {}
    for name in outputs:
        size = memory[name].nbytes
        result[name], data = np.frombuffer(data[:size], memory[name].dtype), data[size:]
    return result


def _main(
    call: Call, instance: interface.Instance, types: Mapping[str, DType], memory: Mapping[str, np.ndarray], outputs: tuple[str, ...]
) -> str:
    scratch = interface.scratch_pieces(call, {}, {name: name for name in call.scratch})
    views: dict[str, interface.PrintedOperand | None] = {name.rstrip("?"): None for name in call.kernel.inputs}
    for name, operand in call.operands.items():
        seen = Footprints(call.geometry, name, operand).in_place({}, name)
        views[name] = interface.make_view(call, name, types[name], seen, operand.access.strides)
    body = interface.render_call(call, instance.name, views, scratch, call.geometry.extents, _lookup)
    lines = ["#include <math.h>", "#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>", f'#include "{instance.struct}.h"']
    lines += [f"void {instance.name}(const struct {instance.struct} *k);"]
    lines += ["int main(int argc, char **argv) {", "    if (argc != 3) return 2;", '    FILE *in = fopen(argv[1], "rb");']
    lines += ["    if (!in) return 3;"]
    for name, array in memory.items():
        c = types[name].c if name in types else "uint8_t"
        lines += [f"    {c} *{name} = malloc({max(1, array.nbytes)});"]
        lines += [f"    if (fread({name}, 1, {array.nbytes}, in) != {array.nbytes}) return 4;"]
    lines += ["    fclose(in);", body, '    FILE *out = fopen(argv[2], "wb");', "    if (!out) return 5;"]
    lines += [f"    fwrite({name}, 1, {memory[name].nbytes}, out);" for name in outputs]
    lines += ["    fclose(out);", *(f"    free({name});" for name in memory), "    return 0;", "}", ""]
    return "\n".join(lines)


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="deeploy-kernels-")


def _folder() -> Path:
    return Path(_scratch().name)


@functools.cache
def _sources() -> str:
    """A hash of all that an instance may include, and of the compilers."""
    files = [path for path in sorted(KERNELS.parent.rglob("*")) if path.suffix in (".c", ".h")]
    digest = hashlib.sha256(repr([*map(objects.tool_identity, ("gcc", "clang")), OBJECT, CALLER, ACCEPTED]).encode())
    for path in files:
        digest.update(f"{path.relative_to(KERNELS.parent)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _kept(*parts: str) -> Path:
    """Where what is made of texts and of all sources is kept from run to run, beside the objects of builds; trees may lie anywhere."""
    warnings = [word.replace(str(KERNELS.parent), "") for word in WARNINGS]
    name = hashlib.sha256("\0".join((_sources(), *warnings, *parts)).encode()).hexdigest()
    return (cache_folder("objects") or _folder()) / name


def _program(text: str, instance: interface.Instance) -> Path:
    """The program of a call."""
    target = _kept("program", text, _text(instance))
    if not target.is_file():
        with tempfile.TemporaryDirectory(dir=_folder()) as work, write_whole(target) as fresh:
            source = Path(work) / "main.c"
            source.write_text(text)
            _compile("gcc", *WARNINGS, *CALLER, str(source), str(_object(instance)), "-lm", "-o", str(fresh))
    return target


def _text(instance: interface.Instance) -> str:
    defines = "".join(f"#define {name} {value}\n" for name, value in instance.macros)
    return f'#include <stdint.h>\n{defines}#include "{Path(instance.source).name}"\n'


@functools.cache
def _object(instance: interface.Instance) -> Path:
    """Compile an instance with sanitizers; of a part of them, drawn by ``--draw``, others must accept it without a warning too."""
    text = _text(instance)
    is_drawn = samples.is_drawn(text, WARNED)
    target = _kept("object", str(is_drawn), text)
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory(dir=_folder()) as work, write_whole(target) as fresh:
        source = Path(work) / f"{instance.name}.c"
        source.write_text(text)
        for compiler, level in ACCEPTED if is_drawn else ():
            _compile(compiler, *WARNINGS, level, "-c", str(source), "-o", "/dev/null")
        _compile("gcc", *WARNINGS, *OBJECT, "-c", str(source), "-o", str(fresh))
    return target


def _compile(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
