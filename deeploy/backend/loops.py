"""The rounds of a loop as the text of one kernel: the layers of a round, printed as those of a network on a flat machine."""

from __future__ import annotations

from dataclasses import dataclass

from deeploy.backend.instance import SELF
from deeploy.backend.layers import Outside, Printer, offset_macro
from deeploy.backend.network import describe_places
from deeploy.frontend.rounds import Body
from deeploy.ir.interface import Instance
from deeploy.ir.kernel import Part
from deeploy.ir.templates import TemplateLookup
from deeploy.planning.plan import Plan
from deeploy.planning.program import Buffer, Role
from deeploy.schedule import build_schedule

ALIGNMENT = 8  # bytes, of what lies in the working memory of the loop
_PREFIX = "part"


@dataclass(frozen=True)
class LoopText:
    """A kernel's text, what it calls, its constants in the order in which they follow the inputs, and bytes of its working memory."""

    text: str
    parts: tuple[Part, ...]
    constants: tuple[Buffer, ...]
    scratch: int


def print_loop_kernel(plan: Plan, body: Body, lookup: TemplateLookup, struct: str) -> LoopText:
    """The C of all rounds of a loop.

    Args:
        plan: of one round, on a flat machine.
        struct: what the kernel takes: inputs, outputs and scratch memory.
    """
    program, schedule = plan.program, build_schedule(plan)
    constants = tuple(buffer for buffer in program.buffers.values() if buffer.role is Role.CONSTANT)
    inputs, outputs = ([program.buffers[name].bytes for name in names] for names in (program.inputs, program.outputs))
    outside = {name: Outside((SELF, f"->inputs[{at}]")) for at, name in enumerate((*program.inputs, *(b.name for b in constants)))}
    outside |= {name: Outside((SELF, f"->outputs[{at}]")) for at, name in enumerate(program.outputs)}
    instances: dict[str, Instance] = {}
    printer = Printer(schedule, program, outside, describe_places(plan), plan.target, lookup, instances, _PREFIX)
    layers = [printer.layer(layer.step) for layer in schedule.layers]
    arena = _align_size(plan.memory[plan.target.memories[0].name].peak)
    carried, end = list[int](), arena
    for size in inputs[: body.carried]:
        carried.append(end)
        end += 2 * _align_size(size)
    text = lookup.get_template("loop.c.mako").render(
        body=body,
        struct=struct,
        headers=sorted({instance.struct for instance in instances.values()} - {struct}),
        functions=[(name, instance.struct) for name, instance in sorted(instances.items())],
        offsets=sorted((offset, offset_macro(name)) for name, offset in plan.offsets.items()),
        layers=layers,
        names=[layer.call.name for layer in schedule.layers],
        inputs=[_align_size(size) if at < body.carried else size for at, size in enumerate(inputs)],
        outputs=outputs,
        carried=carried,
        parts=body.carried + len(body.backwards),
        constants=len(constants),
    )
    parts = (Part(name, i.source, i.struct, i.macros[1:], i.texts) for name, i in sorted(instances.items()))
    return LoopText(text, tuple(parts), constants, end)


def _align_size(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
