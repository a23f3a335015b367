"""The generator of portable C: whether it is installed, and what it makes of a model of one node."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import re
from functools import cache
from typing import Any

import onnx
from onnx import AttributeProto

from deeploy.errors import UsageError, shorten
from deeploy.fallback.portable import ENTRY, GeneratedCode, make_portable
from deeploy.frontend.fold import RANDOM

_PACKAGE = "emx-onnx-cgen"
_PADDING = 6  # position of Attention's lengths of keys
_HARMLESS = re.compile(r"[A-Za-z0-9_ .,:;+=()<>\[\]-]*")  # of strings that generated comments and tables may hold


def generator_version() -> str:
    """Name and version of the generator.

    Raises:
        UsageError: it is not installed.
    """
    _load_compiler()
    return f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}"


@cache
def _load_compiler() -> Any:
    """The generator with its templates, which take seconds to load."""
    try:
        from emx_onnx_cgen.compiler import Compiler, CompilerOptions
    except ImportError as error:
        raise UsageError(f"--fallback: the package {_PACKAGE} is not installed", "Install it: pip install emx-onnx-cgen") from error
    return Compiler(CompilerOptions(model_name=ENTRY, large_temp_threshold_bytes=0, large_weight_threshold=0))


def generate_code(model: onnx.ModelProto) -> GeneratedCode | str:
    """The C of a model of one node, or why there is none."""
    node = model.graph.node[0]
    if node.op_type in RANDOM:
        return "what it computes is random"
    if node.op_type == "Attention" and any(node.input[_PADDING:]):
        return "the generator aligns causal masks of padded keys in another way than onnx does"
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            return "it holds a subgraph"
        if any(not _HARMLESS.fullmatch(value.decode("utf-8", "replace")) for value in (attribute.s, *attribute.strings)):
            return f"its attribute {shorten(attribute.name)} holds characters that generated code must not"
    compiler = _load_compiler()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            text = compiler.compile(model)
    except Exception as error:  # whatever another package fails with, the node has no C then
        return f"{_PACKAGE}: {shorten(str(error) or type(error).__name__, 160)}"
    return make_portable(text, len(model.graph.input), len(model.graph.output))
