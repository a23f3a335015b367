"""Every kind of hazard, made by exchanging lines of a correct network, is caught: in the modes named, with the message named.

``docs/hazards.md`` has a row for every kind. A mutant that the model does not stop must at least give wrong outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.hal import bench, mutate

ALL = bench.MODES
SEEDS = range(8)


@dataclass(frozen=True)
class Mutant:
    """What is exchanged, and what must be said of it in every one of the modes."""

    name: str
    old: str
    new: str
    message: str
    modes: tuple[str, ...] = ALL


ADD_FETCH = "rt_fetch(L2_L1, 0, &(struct rt_box){rt_arena(L1) + AT_WHOLE, rt_arena(L2) + L2_BACK, 384, 0, {0}, {0}});"
START = "rt_start({}, {}, &(struct rt_transfer){{rt_arena(L1) + AT_WHOLE, rt_arena(L2) + L2_BACK, {}}});"
ADD_STORE = "rt_store(L2_L1, 1, &(struct rt_box){rt_arena(L1) + AT_WHOLE, (rt_address)out, 384, 0, {0}, {0}});"
SHARED_SUM = ("k->part[core] +=", "k->part[core / 2] +=")
SPILL_WAIT = "    rt_wait(L2_L1, 0);\n    struct sums *k"
FORK = "rt_fork(CORES, sum_core, k);"

WAITS = (
    Mutant("of a fetched tile", "        rt_wait(L2_L1, t % 2);\n", "", r"writes the destination of a transfer nobody has waited for"),
    Mutant("of a stored tile", "if (t >= 2) rt_wait(L2_L1, 2 + t % 2);", "", r"scale\.y.*overwritten before the wait"),
    Mutant("of the last store of a loop", "    rt_wait(L2_L1, 3);\n}", "}", r"scale\.y died while under way.*ticket 3"),
    Mutant(
        "between spilling and reloading", "    rt_wait(L3_L2, 0);\n    rt_fetch(L3_L2, 1", "    rt_fetch(L3_L2, 1", "reads the destination"
    ),
    Mutant("of the output", "    rt_wait(L2_L1, 1);\n}", "}", r"step 3: add\.back died while under way"),
    Mutant("of the initialisation", "    rt_wait(L3_L2, 0);\n    return", "    return", "the initialisation ended while nobody had waited"),
    Mutant("under another ticket", "        rt_wait(L2_L1, t % 2);\n", "rt_wait(L2_L1, (t + 1) % 2);", "nobody has waited for"),
    Mutant("after a wait for another engine", SPILL_WAIT, "    rt_wait(L3_L2, 0);\n    struct sums *k", r"spill\.y died while under way"),
)

OFFSETS = (
    Mutant("windows that overlap", "AT_X + (rt_address)(t % 2 * 48)", "AT_X + (rt_address)(t % 2 * 44)", "writes the destination"),
    Mutant("a block that is left", "(rt_address)(t * 48)", "(rt_address)(t * 52)", r"\(y\), of which \d+ are left"),
    Mutant("an array that is left", "x + t * TILE * COLUMNS", "x + (t + 1) * TILE * COLUMNS", "lies in no memory of the machine"),
    Mutant("an array that is left in part", "x + t * TILE * COLUMNS", "x + 8 + t * TILE * COLUMNS", r"array of 512 bytes in L2, of which"),
    Mutant("constants that are left", "rt_constants(L3) + 16", "rt_constants(L3) + 120", "of the constants in L3, of which 8 are left"),
    Mutant("the other window", "l1 + AT_Y + t % 2 * 48}", "l1 + AT_Y + (t + 1) % 2 * 48}", "nobody has written the source"),
    Mutant(
        "stores where nothing lives",
        "k->y[row * WIDTH + i] =",
        "k->y[160 + row * WIDTH + i] = k->y[row * WIDTH + i] =",
        r"step 0: L1\+0x1[1-3]\w was written",
    ),
    Mutant(
        "stores behind the arena",
        "k->y[row * WIDTH + i] =",
        "k->y[4096 + row * WIDTH + i] = k->y[row * WIDTH + i] =",
        r"a load or store at L1\+0x10\w\w, outside",
    ),
    Mutant("a store just behind the arena", "k->part[core] = 0;", "((volatile char *)l1)[1024] = 0;", r"L1\+0x400 was written"),
    Mutant("a store just before the arena", "k->part[core] = 0;", "((volatile char *)l1)[-1] = 0;", r"L1-0x1 was written"),
    Mutant("blocks that overlap", '"scale.y", L1, 112', '"scale.y", L1, 108', r"the blocks scale\.x and scale\.y overlap at L1\+0x6c"),
    Mutant("a block beyond the capacity", "L3, 32, 384", "L3, 7952, 384", "block y_far: 384 bytes at L3.0x1f10, which holds 8192"),
    Mutant("a block that is not aligned", "L3, 32, 384", "L3, 40, 384", "block y_far at L3.0x28 is not aligned to 16 bytes"),
)

LIFETIMES = (
    Mutant("begins too late", '{"scale.x", L1, 16, 96, 0, 0}', '{"scale.x", L1, 16, 96, 1, 1}', "belongs to scale.x in the steps 1 to 1"),
    Mutant("ends before a store", '{"y", L2, 16, 384, 0, 1}', '{"y", L2, 16, 384, 0, 0}', "belongs to y in the steps 0 to 0 only"),
    Mutant("ends before a fetch", '{"back", L2, 400, 384, 1, 2}', '{"back", L2, 400, 384, 1, 1}', "belongs to back in the steps"),
    Mutant("of what is fetched early", '{"w", L1, 0, 12, -1, 0}', '{"w", L1, 0, 12, 0, 0}', "belongs to w in the steps 0 to 0"),
    Mutant("of a copy that is kept", '{"w_copy", L2, 0, 12, -1, 3}', '{"w_copy", L2, 0, 12, 0, 3}', "belongs to w_copy in"),
    Mutant("in the wrong order", "    STEP(1);\n", "    STEP(2);\n    STEP(1);\n", "step 1 was announced out of order"),
    Mutant("without a beginning", "    STEP(-1);\n", "", "step 0 was announced out of order"),
    Mutant("that says nothing", '{"w", L1, 0, 12, -1, 0}', '{"w", L1, 0, 12, 2, 0}', "block w: level 0, steps 2 to 0"),
)

OWNERSHIP = (
    Mutant(
        "the source is overwritten",
        SPILL_WAIT,
        "l1[AT_SUM] = 0; ((int8_t *)near)[5] ^= 1;" + SPILL_WAIT,
        r"byte 5 of row 0 of the source was",
    ),
    Mutant("the destination is overwritten", SPILL_WAIT, "l1[AT_WHOLE + 7] ^= 1;" + SPILL_WAIT, "byte 7 of row 0 of the destination was"),
    Mutant("constants are overwritten", "rt_fetch(L3_L2, 0, &", "rt_store(L3_L2, 0, &", "the destination is 0x10 of the constants in L3"),
    Mutant(
        "an input is a destination",
        "add(call->out);",
        "add((int8_t *)(uintptr_t)call->x);",
        "the destination is 0x0 of an array of 512 bytes",
    ),
    Mutant("an input is overwritten", "    STEP(3);", "    ((int8_t *)(uintptr_t)call->x)[9]++;\n    STEP(3);", "byte 9 of x differs"),
    Mutant("nothing is stored", ADD_STORE, "(void)out;", "nobody has written the output y"),
    Mutant(
        "memory of the last inference", "    STEP(3);", "    static char n;\n    call->out[0] += n++;\n    STEP(3);", "byte 0 of y differs"
    ),
    Mutant(
        "an array nobody announced",
        "    RT_REGION(L2, outputs[0], ROWS * WIDTH, 1);\n",
        "",
        "the destination 0x[0-9a-f]+ lies in no memory",
    ),
)


def _start(arguments: str, engine: str = "L2_L1", ticket: int = 0) -> tuple[str, str]:
    return ADD_FETCH, START.format(engine, ticket, arguments)


def _far(arguments: str, base: str = "rt_arena(L3)") -> tuple[str, str]:
    return ADD_FETCH, f"rt_start(L3_L2, 0, &(struct rt_transfer){{rt_arena(L2) + L2_BACK, {base} + {arguments}}});"


LIMITS = (
    Mutant("bytes of a row", *_start("132, 1, 132, 132"), "L2_L1: bytes of a row, 132 are more than 128"),
    Mutant("rows", *_start("4, 9, 4, 4"), "L2_L1: rows, 9 are more than 8"),
    Mutant("bytes of a transfer", *_start("100, 6, 100, 100"), "L2_L1: bytes in all rows, 600 are more than 512"),
    Mutant("pitch", *_start("4, 2, 4, 260"), "L2_L1: pitch of the source 260 are more than 256"),
    Mutant("pitch on the near side", *_start("4, 2, 8, 8"), "rows of 4 bytes that are 8 apart in L1"),
    Mutant("nothing", *_start("0, 1, 0, 0"), "1 rows of 0 bytes"),
    Mutant("no rows", *_start("4, 0, 4, 4"), "0 rows of 4 bytes"),
    Mutant("tickets", *_start("4, 1, 4, 4", ticket=4), "L2_L1 has 4 tickets, this is number 4"),
    Mutant("a ticket below zero", *_start("4, 1, 4, 4", ticket=-1), "this is number -1"),
    Mutant("an engine", *_start("4, 1, 4, 4", engine="2"), "there is no engine 2"),
    Mutant("another engine's levels", *_start("4, 1, 4, 4", engine="L3_L2"), "L3_L2 connects L2 and L3: the destination is L1"),
    Mutant("alignment of a length", *_far("L3_Y, 6, 1, 6, 6"), "L3_L2: length 0x6 is not aligned to 4 bytes"),
    Mutant("alignment of an address", *_far("L3_Y + 2, 4, 1, 4, 4"), "L3_L2: source 0x[0-9a-f]+[26ae] is not aligned to 4 bytes"),
    Mutant("one level only", *_far("0, 4, 1, 4, 4", "rt_arena(L2)"), "L3_L2: both sides lie in L2"),
    Mutant(
        "rows of a destination",
        ADD_STORE,
        "rt_start(L2_L1, 1, &(struct rt_transfer){(rt_address)out, rt_arena(L1) + AT_WHOLE, 8, 4, 4, 8});",
        "L2_L1: rows of 8 bytes that are 4 apart",
    ),
)

OTHERS = (
    Mutant("a far level is read", SPILL_WAIT, "l1[AT_SUM] = *(int8_t *)far;" + SPILL_WAIT, r"a load or store at L3\+0x20 \(y_far\)"),
    Mutant("far constants are read", SPILL_WAIT, "l1[AT_SUM] = *(int8_t *)rt_constants(L3);" + SPILL_WAIT, "at 0x0 of the constants in L3"),
    Mutant(
        "a core skips a barrier", "    rt_barrier();\n}", "    if (core) rt_barrier();\n}", "3 of 4 cores wait at a barrier, the others"
    ),
    Mutant(
        "another core waits",
        "    k->part[core] = 0;",
        "    if (core == 3) rt_wait(L2_L1, 0);\n    k->part[core] = 0;",
        "core 3: rt_wait is called",
    ),
    Mutant("a team is too large", FORK, "rt_fork(5, sum_core, k);", "rt_fork of 5 cores, the machine has 4"),
    Mutant("a team forks", "    k->part[core] = 0;", "    rt_fork(1, sum_core, argument);", "rt_fork inside of rt_fork"),
    Mutant(
        "two cores write one row, with equal values",
        "    const int row = rt_core();\n    for",
        "    for (int row = rt_core() / 2; row <= rt_core() / 2 + 1; row++)\n    for",
        r"cores \d and \d have both written L1\+0x\w+ \(scale\.y\)",
    ),
    Mutant("cores share a sum", *SHARED_SUM, r"cores \d and \d have both written L1\+0x\w+ \(sums\)"),
    Mutant(
        "the controller forks",
        "    return rt_enter(",
        "    rt_fork(1, sum_core, NULL);\n    return rt_enter(",
        "rt_fork outside of rt_enter",
    ),
    Mutant("the cluster enters itself", "    STEP(3);", "    rt_enter(cluster, argument);\n    STEP(3);", "rt_enter inside of rt_enter"),
)

NO_WAIT_FOR_W = (("    rt_wait(L2_L1, 3);\n    scale", "    scale"),)
SHORT_SUMS = (('{"sums", L1, 208, 16, 1, 2}', '{"sums", L1, 208, 16, 1, 1}'),)
NO_BARRIER = (("    rt_barrier();\n    if (core == 0)", "    if (core == 0)"),)
EARLY_STORE = (
    ("\n\nstatic void fetch_x(", "    if (row == 0) store_y(k->y != l1 + AT_Y);\n}\n\nstatic void fetch_x("),
    ("k->w[i]);\n}", "k->w[i]);\n"),
    ("struct scale {", "static void store_y(int t);\n\nstruct scale {"),
    ("        store_y(t);\n", ""),
)


@pytest.mark.parametrize("mutant", [*WAITS, *OFFSETS, *LIFETIMES, *OWNERSHIP, *LIMITS, *OTHERS], ids=lambda mutant: mutant.name)
def test_the_model_stops_it_and_says_why(mutant: Mutant) -> None:
    application = bench.build("plain", ((mutant.old, mutant.new),))
    for mode in mutant.modes:
        result = bench.run(application, mode, repeat=2)
        assert result.status == bench.VIOLATION, (mode, result)
        assert re.search(mutant.message, result.message), (mode, result.message)
        assert re.fullmatch(r"host model: (outside of all steps|step -?\d+)(, core \d)?: .+\n  [A-Z].+\.\n", result.message), result.message


def test_a_missing_wait_shows_when_transfers_land_late() -> None:
    """Nothing else gives it away: a later wait for the same ticket covers it up."""
    application = bench.build("plain", NO_WAIT_FOR_W)
    assert bench.run(application, "early").is_right
    assert not bench.run(application, "late").is_right
    assert not all(bench.run(application, "random", seed).is_right for seed in SEEDS)


@pytest.mark.parametrize(
    "mutant", list(mutate.mutants({"network.c": bench.sources()["network.c"]}, "AT_|L2_|L3_")), ids=lambda mutant: mutant.name
)
def test_no_mutant_survives(mutant: mutate.Mutant) -> None:
    """Every wait and transfer dropped, every offset shifted, every lifetime shortened, every window swapped."""
    application = bench.build_sources({**bench.sources(), **mutant.sources})
    runs = (bench.run(application, mode, repeat=2) for mode in ("late", "random", "early"))
    assert any(run.status or not run.is_right for run in runs)


@pytest.mark.parametrize("mode", ALL)
def test_a_store_to_another_living_block_gives_wrong_outputs(mode: str) -> None:
    changes = (("    k->part[core] = 0;", "    k->part[core] = 0;\n    l1[AT_WHOLE + 96 * core + 5] ^= 1;"),)
    assert not bench.run(bench.build("plain", changes), mode).is_right


def test_an_output_that_is_written_in_part_differs_from_one_inference_to_the_next() -> None:
    application = bench.build("plain", ((ADD_STORE, ADD_STORE.replace("384", "383")),))
    assert bench.run(application).status == 0
    assert "byte 383 of y differs" in bench.run(application, repeat=2).message


@pytest.mark.parametrize("mode", ALL)
def test_a_lifetime_that_ends_before_the_last_load_gives_wrong_outputs(mode: str) -> None:
    assert not bench.run(bench.build("plain", SHORT_SUMS), mode).is_right


def test_a_race_between_cores_shows_for_some_seed() -> None:
    application = bench.build("plain", NO_BARRIER)
    assert {bench.run(application, "late", seed).is_right for seed in SEEDS} >= {False}


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (NO_WAIT_FOR_W, r"host model: step 0, core \d: a load or store at L1\+0x\w \(w\)"),
        (SHORT_SUMS, r"host model: step 2: a load or store at L1\+0xd\w \(no living block\)"),
        (
            (("k->x[row * WIDTH + i]", "k->x[row * WIDTH + i + 400]"),),
            r"host model: step 0, core \d: a load or store at L1\+0x1\w\w \(no living",
        ),
    ],
    ids=["destination under way", "dead block", "beside the blocks"],
)
def test_the_address_sanitizer_sees_loads_of_what_is_not_there(changes: tuple[tuple[str, str], ...], where: str, mode: str) -> None:
    result = bench.run(bench.build("asan", changes), mode)
    assert result.status not in (0, bench.VIOLATION)
    assert "use-after-poison" in result.message
    assert re.search(where, result.message), result.message


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("changes", [NO_BARRIER, (SHARED_SUM,), EARLY_STORE], ids=["no barrier", "shared sum", "early store"])
def test_the_thread_sanitizer_sees_races_between_cores(changes: tuple[tuple[str, str], ...], mode: str) -> None:
    result = bench.run(bench.build("tsan", changes), mode)
    assert result.status
    assert "ThreadSanitizer: data race" in result.message


@pytest.mark.parametrize("mode", ALL)
def test_threads_find_unequal_barriers_too(mode: str) -> None:
    result = bench.run(bench.build("threads", ((OTHERS[2].old, OTHERS[2].new),)), mode)
    assert (result.status, "3 of 4 cores wait" in result.message) == (bench.VIOLATION, True)
