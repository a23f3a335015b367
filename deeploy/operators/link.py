"""Operators between the chips of a system: Send and Recv (docs/chips.md).

Both have the attributes ``peer``, the other chip's number, and ``tag``. The tensor that the Send with a tag reads on one chip is what
the Recv with this tag writes on the other; between a sender and a receiver, a tag occurs once. A Send has no outputs and a Recv no
inputs, so that a graph with them states the order of its nodes (``Graph.order``).
"""

from __future__ import annotations

from deeploy.ir.kernel import ANY, CORE, Kernel, Operator, Row, Tiling
from deeploy.ir.nest import Map, Nest, parallel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import Array
from deeploy.operators.accumulate import exclude_overflow

SEND, RECV = "Send", "Recv"
_RANK = 12  # most axes of a tensor that is sent


def send(tensor: Tensor, peer: int, tag: int) -> Node:
    """The node that sends ``tensor`` to chip ``peer``."""
    return Node(f"send {tag} to {peer}: {tensor.name}", SEND, (tensor,), (), {"peer": peer, "tag": tag})


def receive(like: Tensor, peer: int, tag: int, name: str | None = None) -> Node:
    """The node that receives a tensor of the shape and type of ``like`` from chip ``peer``.

    Args:
        name: of the tensor; that of ``like`` by default.
    """
    tensor = Tensor(name or like.name, like.shape, like.dtype)
    return Node(f"recv {tag} from {peer}: {tensor.name}", RECV, (), (tensor,), {"peer": peer, "tag": tag})


def send_nest(node: Node) -> Nest:
    """Every element is read."""
    tensor = node.operands[0]
    return Nest(reads={"x": Map(*parallel(*(f"d{axis}" for axis in range(len(tensor.shape)))))}, writes={})


def recv_nest(node: Node) -> Nest:
    """Every element is written."""
    rank = len(node.outputs[0].shape) if node.outputs else 0
    return Nest(reads={}, writes={"y": Map(*parallel(*(f"d{axis}" for axis in range(rank))))})


def send_reference(node: Node, x: Array) -> tuple[Array, ...]:
    """Computes nothing; who runs the program hands ``x`` over (``Kernel.link``)."""
    return ()


def recv_reference(node: Node) -> Array:
    """What has arrived is not for an operator to say (``Kernel.link``)."""
    raise TypeError(f"{node.name} is computed by another chip")


_WHOLE = Tiling(whole=tuple(f"d{axis}" for axis in range(_RANK)))
SENDING = Operator(
    SEND, ("x",), send_nest, send_reference, Row(outputs=(), types={"x": ANY}, tiling=_WHOLE, link="send"), integers=exclude_overflow
)
RECEIVING = Operator(RECV, (), recv_nest, recv_reference, Row(types={"y": ANY}, tiling=_WHOLE, link="recv"), integers=exclude_overflow)


def kernels(engine: str = CORE) -> tuple[Kernel, Kernel]:
    """The kernels of both for a target whose ``engine`` sends and receives what lies in its memory; they have no C file."""
    sender = SENDING.kernel("send", "", template="send.mako", engine=engine)
    return sender, RECEIVING.kernel("recv", "", template="recv.mako", engine=engine)
