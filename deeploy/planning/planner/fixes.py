"""What the user fixes of a plan: who computes a node, in which tiles, behind which other one, and where a tensor lies (``--fix``).

A node is one of the model's file. What is fixed of it holds for all calls that compute what it makes, or what other nodes make of that
before anything is stored. Nothing else can be chosen there then; what that costs is the difference to the plan without it.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from deeploy.errors import UsageError, shorten
from deeploy.ir.target import Target
from deeploy.planning.choice.problem import Residence
from deeploy.planning.packing.order import arrange_calls, in_order, order_calls
from deeploy.planning.plan import Fix, Machine
from deeploy.planning.program import Call, Program, Role, narrow_variants
from deeploy.planning.tiling.loops import cut_dims

_FORM = re.compile(r"(?P<subject>.+)\.(?P<what>engine|kernel|buffering|after|memory|tile\.\w+)", re.DOTALL)
_LISTED = 8  # names in a message
_EXAMPLES = "For example: --fix conv1.engine=cluster, --fix conv1.tile.k=32, --fix hidden.memory=L2"


@dataclass(frozen=True)
class Wanted:
    """What is fixed of a network, and the nodes of its file: what each reads and makes."""

    fixes: tuple[Fix, ...]
    nodes: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    readers: Mapping[str, Sequence[str]]

    def applied(self, program: Program, target: Target, machine: Machine) -> tuple[Program, Machine]:
        """The program with the variants and in the order that are left, and the machine that knows the rest.

        Raises:
            UsageError: something that is fixed is not there, or is not possible.
        """
        if target.is_flat and (fix := next((f for f in self.fixes if f.what not in ("engine", "kernel", "after")), None)) is not None:
            raise UsageError(f"{fix}: target {target.name} has one flat memory", "There, only engine, kernel and after can be fixed.")
        left_out = {engine.name for engine in target.engines}.difference(machine.engines) if machine.engines else set()
        for fix in self.fixes:
            if fix.what == "engine" and fix.value in left_out:
                raise UsageError(f"{fix} and --engines {','.join(machine.engines)} contradict each other", "Leave one of them out.")
        fixed = [self._held(fix, program, target) for fix in self.fixes]
        for fix, other in itertools.combinations(fixed, 2):
            if fix.what == other.what != "after" and fix.value != other.value and fix.names & other.names:
                raise UsageError(
                    f"{fix} and {other} are about the same {'tensor' if fix.what == 'memory' else 'layer'}", "Leave one of them out."
                )
        for number, fix in enumerate(fixed):
            if fix.what in ("engine", "kernel") or fix.dim:
                program = _with_variants(fix, program, [other for other in fixed[:number] if other.names & fix.names])
        pairs = [(fix, call) for fix in fixed if fix.what == "after" for call in self._calls(fix, fix.value, program)]
        return _in_order(pairs, program), replace(machine, fixes=tuple(fixed))

    def _held(self, fix: Fix, program: Program, target: Target) -> Fix:
        """What is fixed, with the calls or the buffer that it is about."""
        if fix.what == "memory":
            levels = [target.engines[0].memory, *(path.far for path in target.outward(target.engines[0].memory))]
            if fix.value not in levels:
                is_known = any(memory.name == fix.value for memory in target.memories)
                why = f"{fix.value} holds what kernels want there" if is_known else f"target {target.name} has no such memory"
                raise UsageError(f"{fix}: {why}", f"Name {' or '.join(levels)}{', or fix a kernel' if is_known else ''}.")
            return replace(fix, names=frozenset([_fixable_buffer(fix, program)]))
        if fix.what == "buffering" and fix.value not in ("single", "double"):
            raise UsageError(f"{fix}: there is no such buffering", "Say single or double.")
        return replace(fix, names=frozenset(call.name for call in self._calls(fix, fix.subject, program)))

    def _calls(self, fix: Fix, node: str, program: Program) -> list[Call]:
        """The calls that compute what a node of the file makes."""
        own = [call for call in program.calls if node in (call.node.name, call.name)]
        if node not in self.nodes and not own:
            raise UsageError(
                f"{fix}: the model has no node {shorten(node)}", _suggest_names(node, self.nodes, [call.name for call in program.calls])
            )
        read, made = self.nodes.get(node, ((), ()))
        before = {operand.buffer for name in read if (operand := program.tensors.get(name)) is not None}
        calls, left, seen = list(own), list(made), set(made)
        while left:
            name = left.pop()
            operand = program.tensors.get(f"{name} (channels last)") or program.tensors.get(name)
            makers = [] if operand is None or operand.buffer in before else list(_writing_calls(program, operand.buffer))
            calls += [call for call in makers if call not in calls]
            if not makers and operand is None:
                more = [other for other in self.readers.get(name, ()) if other not in seen]
                left += more
                seen.update(more)
        if not calls:
            raise UsageError(
                f"{fix}: no layer computes {shorten(node)}, which is folded or only a view", "deeploy report OUT lists the layers."
            )
        return calls


def parse_fixes(given: Mapping[str, str | int], model: str) -> Wanted:
    """What is fixed, by ``NODE.engine``, ``NODE.kernel``, ``NODE.tile.DIM``, ``NODE.buffering``, ``NODE.after`` and ``TENSOR.memory``.

    Args:
        model: the path of the ONNX file.

    Raises:
        UsageError: a name has none of these forms.
    """
    fixes = list[Fix]()
    for name, value in given.items():
        match = _FORM.fullmatch(name)
        if match is None:
            kinds = "NODE.engine, kernel, tile.DIM, buffering or after, or TENSOR.memory"
            raise UsageError(f"--fix {shorten(name, 60)}={shorten(str(value), 40)}: what can be fixed is {kinds}", _EXAMPLES)
        fixes.append(Fix(match["subject"], match["what"], str(value)))
    nodes, readers = dict[str, tuple[Sequence[str], Sequence[str]]](), dict[str, list[str]]()
    for node in onnx.load(model, load_external_data=False).graph.node if fixes else ():
        nodes[node.name] = tuple(node.input), tuple(node.output)
        for name in node.input:
            readers.setdefault(name, []).extend(node.output)
    return Wanted(tuple(fixes), nodes, readers)


def where_fixed(
    fixes: Sequence[Fix], residences: Sequence[Residence], heads: Mapping[str, str], levels: Sequence[str], otherwise: int | None
) -> list[Residence]:
    """Residences with those memories alone that the user fixes.

    Args:
        heads: the first of the buffers that share an activation's address.
        otherwise: where constants lie for which there is nothing to choose; None where there may be more to choose in a later problem.

    Raises:
        UsageError: a buffer cannot lie where the user wants it.
    """
    result = list(residences)
    for fix in (fix for fix in fixes if fix.what == "memory"):
        (name,), level = fix.names, levels.index(fix.value)
        at = next((n for n, one in enumerate(result) if heads.get(name) == one.name or name in one.buffers), None)
        possible = (otherwise,) if at is None else result[at].distances
        if otherwise is not None and level not in possible:
            known = " or ".join(levels[distance] for distance in possible if distance is not None)
            raise UsageError(f"{fix}: {f'it can lie in {known} only' if known else 'there is no room for it'}", "Leave it out.")
        if at is not None:
            result[at] = replace(result[at], distances=(level,) if level in possible else ())
    return result


def reorder_program(program: Program, machine: Machine) -> Program:
    """The program in the order that needs the least memory, where the user fixes none."""
    return program if any(fix.what == "after" for fix in machine.fixes) else order_calls(program)


def _suggest_names(name: str, every: Iterable[str], listed: Sequence[str]) -> str:
    """What to say of a name that is not there: names like it, or some that are."""
    known = [one for one in dict.fromkeys((*listed, *every)) if one]
    near = [one for one in known if name.lower() in one.lower()] or difflib.get_close_matches(name, known, _LISTED, 0.4)
    if near:
        return f"Did you mean {', '.join(shorten(one, 48) for one in near[:_LISTED])}?"
    return f"Name one of {', '.join(shorten(one, 48) for one in known[:_LISTED])}{', ...' * (len(known) > _LISTED)}"


def _writing_calls(program: Program, buffer: str) -> Iterator[Call]:
    return (call for call in program.calls if any(call.operands[name].buffer == buffer for name in call.writes))


def _fixable_buffer(fix: Fix, program: Program) -> str:
    """The buffer of a tensor whose memory can be chosen."""
    operand = program.tensors.get(f"{fix.subject} (channels last)") or program.tensors.get(fix.subject)
    constants = [buffer.name for buffer in program.buffers.values() if buffer.role is Role.CONSTANT and buffer.tensor == fix.subject]
    own = program.buffers.get(fix.subject)
    constants += [own.name] if own is not None and own.role is not Role.SCRATCH else []
    if operand is None and not constants:
        known = [buffer.tensor for buffer in program.buffers.values()]
        raise UsageError(f"{fix}: no tensor {shorten(fix.subject)} is stored", _suggest_names(fix.subject, program.tensors, known))
    buffer = program.buffers[operand.buffer if operand is not None else constants[0]]
    if buffer.role in (Role.INPUT, Role.OUTPUT) or buffer.memory:
        where = f"in {buffer.memory}, where its kernel wants it" if buffer.memory else "where the caller has it"
        raise UsageError(f"{fix}: it lies {where}", "Leave it out.")
    return buffer.name


def _with_variants(fix: Fix, program: Program, others: Sequence[Fix]) -> Program:
    """The program with the variants of some calls that can be as the user wants; calls without one keep theirs, if others have one.

    Args:
        others: what has been fixed of these calls before.
    """
    numbers, rivals = list[tuple[int, ...]](), list[Call]()
    for step, call in enumerate(program.calls):
        variants = program.variants(step)
        rivals += variants if call.name in fix.names else []
        fitting = tuple(n for n, one in enumerate(variants) if _is_as_wanted(fix, one)) if call.name in fix.names else ()
        numbers.append(fitting or tuple(range(len(variants))))
    if not any(_is_as_wanted(fix, call) for call in rivals):
        raise _refuse_fix(fix, rivals, f" with {' and '.join(map(str, others))}" if others else "")
    return narrow_variants(program, numbers)


def _is_as_wanted(fix: Fix, call: Call) -> bool:
    """Whether a variant of a call can be what the user fixes of it."""
    if fix.what in ("engine", "kernel"):
        return fix.value == (call.kernel.engine if fix.what == "engine" else call.kernel.name)
    extent, multiple = call.geometry.extents.get(fix.dim, 0), cut_dims(call).get(fix.dim)
    size = int(fix.value) if fix.value.isascii() and fix.value.isdigit() and len(fix.value) < 10 else 0
    return size == extent > 0 or (multiple is not None and 0 < size < extent and size % multiple == 0)


def _refuse_fix(fix: Fix, rivals: Sequence[Call], note: str) -> UsageError:
    """Why no variant of some calls can be as the user wants."""
    if fix.what in ("engine", "kernel"):
        names = dict.fromkeys(call.kernel.engine if fix.what == "engine" else call.kernel.name for call in rivals)
        return UsageError(f"{fix}: {shorten(fix.value)} cannot compute it{note}", f"Name {' or '.join(names)}.")
    dim, cuts = fix.dim, [(call.geometry.extents, cut_dims(call)) for call in rivals]
    if (contradiction := next(((extents[dim], dims[dim]) for extents, dims in cuts if dim in dims), None)) is None:
        known = ", ".join(dict.fromkeys(f"{name} ({extents[name]})" for extents, dims in cuts for name in dims))
        return UsageError(f"{fix}: the layer is not cut along {dim}{note}", f"It may be cut along {known or 'no dimension'}.")
    what = f"{fix}: tiles along {dim} have 1 to {contradiction[0]} iterations, in multiples of {contradiction[1]}{note}"
    return UsageError(what, f"Say {contradiction[0]} to leave it whole.")


def _in_order(pairs: Sequence[tuple[Fix, Call]], program: Program) -> Program:
    """The program with some calls behind others."""
    if not pairs:
        return program
    steps = {call.name: step for step, call in enumerate(program.calls)}
    edges = [(steps[name], steps[other.name]) for fix, other in pairs for name in fix.names]
    order = in_order(program, edges)
    if order is None:
        fix = pairs[0][0]
        raise UsageError(f"{fix}: {shorten(fix.value)} needs what {shorten(fix.subject)} computes", "Leave it out, or swap the two.")
    return arrange_calls(program, order)
