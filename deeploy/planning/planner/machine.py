"""How much of a target a plan may use: the target's own figures, less what is reserved, unless options say otherwise."""

from __future__ import annotations

from dataclasses import replace

from deeploy.errors import UsageError, suggest
from deeploy.ir.kernel import Kernel
from deeploy.ir.target import Target
from deeploy.ir.topology import Topology
from deeploy.options import Options
from deeploy.planning.energy import check_energies
from deeploy.planning.plan import UNLIMITED, Machine


def own_options(options: Options, topology: Topology, chip: int) -> Options:
    """What a chip may use of its target: the less of what the options and the topology say of it."""
    member = topology.members.get(chip)
    if member is None:
        return replace(options, on_stage=None)
    given = options.capacities
    capacities = given | {name: min(size, given.get(name, size)) for name, size in member.capacities.items()}
    cores = min((count for count in (options.cores, member.cores) if count is not None), default=None)
    named = [engines for engines in (options.engines, member.engines) if engines is not None]
    both = tuple(name for name in named[0] if all(name in engines for engines in named)) if named else None
    return replace(options.with_memory(capacities), cores=cores, engines=both, on_stage=None)


def check_code(target: Target) -> None:
    """Raise ``UsageError`` where a target is for planning only."""
    if target.device is not None:
        raise UsageError(
            f"target {target.name} is for planning only: no code is made for it",
            "Plan with deeploy compile --chips N --partition pipeline, or take another target (deeploy targets).",
        )


def levels_of(target: Target) -> tuple[str, ...]:
    """The memories by the numbers that a choice calls them: the first engine's own, those further out, other engines' own, the rest."""
    first = target.engines[0].memory
    outer = (path.far for path in target.outward(first))
    return tuple(dict.fromkeys((first, *outer, *(engine.memory for engine in target.engines), *(m.name for m in target.memories))))


def machine_of(target: Target, options: Options) -> Machine:
    """The machine that a plan may use.

    Raises:
        UsageError: an option that the target does not have, or that is out of range.
    """
    given = (options.cores is not None, options.default_memory, options.buffering != "auto", options.engines)
    if target.is_flat and any(given):
        raise UsageError(f"target {target.name} has one flat memory and one core", "Leave out --cores, --engines, --buffering.")
    if target.is_flat and (options.objective == "traffic" or not options.fusion):
        given_as = "--objective traffic" if options.objective == "traffic" else "--no-fusion"
        raise UsageError(
            f"{given_as}: target {target.name} has one flat memory",
            "Leave it out: there, only --memory and --objective ram make fused groups.",
        )
    if options.objective == "ram" and not target.is_flat:
        name = target.engines[0].memory
        raise UsageError(
            f"--objective ram: target {target.name} has several memories", f"Say what each may take, for example --memory {name}=BYTES."
        )
    names = {memory.name.lower(): memory for memory in target.memories}
    capacities = {m.name: (m.capacity if m.capacity is not None else UNLIMITED) - m.reserved for m in target.memories}
    resident = {name for kernel in target.kernels for name in kernel.resident.values()}
    for key, value in options.capacities.items():
        memory = names.get(key)
        if memory is None:
            near = suggest(key, (m.name for m in target.memories))
            listed = f"{near}Its memories: {', '.join(m.name for m in target.memories)}."
            raise UsageError(f"target {target.name} has no memory {key}", listed)
        least = 0 if memory.name in resident else 1
        if not least <= value <= capacities[memory.name]:
            raise UsageError(
                f"{_memory_option(memory.name)}{value}: the arena of {memory.name} takes {least} to {capacities[memory.name]} bytes",
                f"{memory.name} has {memory.capacity} bytes, of which {memory.reserved} are reserved for stacks and code.",
            )
        capacities[memory.name] = value
    most = max(engine.cores for engine in target.engines)
    cores = most if options.cores is None else options.cores
    if not 1 <= cores <= most:
        raise UsageError(f"--cores {cores}: target {target.name} has teams of 1 to {most} cores", f"For example: --cores {most}")
    outer = [path.far for path in target.outward(target.engines[0].memory)]
    default = "" if target.is_flat else options.default_memory or target.default_memory
    if outer and default.upper() not in outer:
        what = f"--default-memory {default}: constants of target {target.name} lie in {' or '.join(outer)}"
        raise UsageError(what, f"{suggest(default, outer)}Use {outer[0]}.")
    engines = _chosen_engines(target, options)
    check_energies(target, options.objective, engines)
    return Machine(capacities, cores, options.buffering, default.upper(), engines, objective=options.objective, fusion=options.fusion)


def _memory_option(memory: str) -> str:
    return f"--{memory.lower()} " if memory in ("L1", "L2") else f"--memory {memory}="


def share_machine(machine: Machine, target: Target) -> Machine:
    """What each of several networks of a project may use: no constants that are resident or copied, as all begin where the memory does."""
    resident = [name for kernel in target.kernels for name in kernel.resident.values()]
    return replace(machine, capacities={**machine.capacities, **dict.fromkeys(resident, 0)}, copies=False)


def _chosen_engines(target: Target, options: Options) -> tuple[str, ...]:
    links = {kernel.engine for kernel in target.kernels if kernel.link is not None}  # there is no choice between these
    known = tuple(engine.name for engine in target.engines if engine.name not in links or engine is target.engines[0])
    wanted = known if options.engines is None else options.engines
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise UsageError(
            f"--engines {','.join(wanted)}: target {target.name} has no engine {unknown[0]}" if unknown else "--engines names no engine",
            f"{suggest(unknown[0], known) if unknown else ''}Its engines: {', '.join(known)}.",
        )
    return tuple(name for name in known if name in wanted)


def kernels_of(target: Target, machine: Machine) -> tuple[list[Kernel], list[Kernel]]:
    """The kernels that a plan may choose from, and those of engines that are not to be used."""

    def is_on(kernel: Kernel) -> bool:
        is_wanted = not machine.engines or kernel.engine in machine.engines or kernel.link is not None
        return is_wanted and all(machine.capacities[m] for m in kernel.resident.values())

    on = [kernel for kernel in target.kernels if is_on(kernel)]
    return on, [kernel for kernel in target.kernels if kernel not in on]
