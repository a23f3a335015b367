"""Normalisation of LSTM, GRU and RNN: defaults are stated, and what is not supported is refused."""

from __future__ import annotations

import onnx

from deeploy.errors import UnsupportedError
from deeploy.frontend.rules import Draft, absent_output, broken_node, constant_operand, describe_node, integer_attribute
from deeploy.ir.nodes import Tensor
from deeploy.operators.recurrent import GATES

# Of one direction, where the file names none.
ACTIVATIONS = dict(zip(GATES, (("Sigmoid", "Tanh", "Tanh"), ("Sigmoid", "Tanh"), ("Tanh",)), strict=True))
_LENGTHS = 4  # the position of the sequence lengths
# The integer form's name of a function, and the parameters of which a file states those that differ.
FUNCTIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "affine": ("affine", (1.0, 0.0)),
    "elu": ("elu", (1.0,)),
    "hardsigmoid": ("hard_sigmoid", (0.2, 0.5)),
    "leakyrelu": ("leaky_relu", (0.01,)),
    "relu": ("leaky_relu", ()),
    "scaledtanh": ("scaled_tanh", (1.0, 1.0)),
    "sigmoid": ("sigmoid", ()),
    "softplus": ("softplus", ()),
    "softsign": ("softsign", ()),
    "tanh": ("tanh", ()),
    "thresholdedrelu": ("thresholded_relu", (1.0,)),
}


def normalise_recurrent(node: Draft) -> Tensor | None:
    """LSTM, GRU, RNN: all inputs and outputs have a place, absent ones are empty, and lengths are those of the sequences.

    ``functions`` are those of all directions, each a name in the integer form and two parameters.
    """
    direction = str(node.attrs.get("direction", "forward")).lower()
    layout, schema = integer_attribute(node, "layout", 0), onnx.defs.get_schema(node.op)
    node.inputs += [None] * (schema.max_input - len(node.inputs))
    node.outputs += [absent_output() for _ in range(schema.max_output - len(node.outputs))]
    lengths, steps = constant_operand(node, _LENGTHS), node.x.shape[layout]
    if node.inputs[_LENGTHS] is not None and (lengths is None or (lengths != steps).any()):
        raise UnsupportedError(
            f"{describe_node(node)} has sequence lengths that are {'computed' if lengths is None else f'not {steps}, that of its input'}",
            "leave sequence_lens out, and compile the model for one length (--dim)",
        )
    node.inputs[_LENGTHS] = None
    attributes = {
        "clip": float(node.attrs.get("clip", 0.0)),
        "direction": direction,
        "functions": _gate_functions(node, 1 + (direction == "bidirectional")),
        "input_forget": integer_attribute(node, "input_forget", 0),
        "layout": layout,
        "linear_before_reset": integer_attribute(node, "linear_before_reset", 0),
    }
    node.attrs.clear()
    node.attrs.update(attributes)
    return None


def _gate_functions(node: Draft, directions: int) -> list[tuple[str, float, float]]:
    usual = ACTIVATIONS[node.op] * directions
    given = node.attrs.get("activations") or usual
    if len(given) != len(usual):
        raise broken_node(node, f"has {len(given)} activations instead of {len(usual)}")
    alphas, betas = (list(node.attrs.get(f"activation_{name}") or []) for name in ("alpha", "beta"))
    functions = []
    for name in given:
        if str(name).lower() not in FUNCTIONS:
            raise UnsupportedError(
                f"{describe_node(node)} has the activation '{str(name)[:40]}'", "use one that ONNX names for recurrent layers"
            )
        function, parameters = FUNCTIONS[str(name).lower()]
        own = [float(given.pop(0)) if given else value for given, value in zip((alphas, betas), parameters, strict=False)]
        alpha, beta = (*own, 0.0, 0.0)[:2]
        functions.append((function, alpha, beta))
    return functions
