"""Several chips end to end: emitted, built and run as threads and as MPI ranks, bit for bit as the interpreter; and chips that get lost."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.transformer_models import Shape, decoder
from deeploy import chips
from deeploy.backend import project
from deeploy.chips import Distributed
from deeploy.errors import BuildError, UnsupportedError, UsageError
from deeploy.execution.runners import host
from deeploy.execution.simulation import chips as golden
from deeploy.options import Options
from deeploy.planning.planner.isomorphic import program_signature
from tests.e2e.systems import distributed, layered, samples, star, towers
from tests.models import Net

needs_mpi = pytest.mark.skipif(shutil.which("mpicc") is None or shutil.which("mpirun") is None, reason="Open MPI is not installed")


def equal(got: list[np.ndarray], expected: list[list[np.ndarray]]) -> bool:
    """Outputs stacked over samples against those of each sample."""
    return all(np.array_equal(array, np.stack(arrays)) for array, arrays in zip(got, zip(*expected, strict=True), strict=True))


@pytest.mark.parametrize(
    ("target", "options"), [("generic", Options()), ("siracusa", Options()), ("siracusa", Options(default_memory="L3"))]
)
def test_chips_compute_what_one_chip_does(tmp_path: Path, target: str, options: Options) -> None:
    system = star(tmp_path, target, 3, options=options)
    system.write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    given = samples(6, 96)
    expected = system.references(given)
    assert len({array.tobytes() for (array,) in expected}) == 6
    assert equal(host.Host().run(tmp_path / "out", manifest, given).outputs, expected)
    alone = distributed(towers(32, 3), tmp_path, target, lambda *_: 0, 1, options)
    assert alone.references(given)[0][0].tobytes() == expected[0][0].tobytes()


def test_under_sanitizers(tmp_path: Path) -> None:
    system = star(tmp_path, "siracusa", 2, options=Options(memory={"l1": 4000}))
    system.write(tmp_path / "out")
    given = samples(2, 64)
    got = host.Host(sanitize=True).run(tmp_path / "out", project.read_manifest(tmp_path / "out"), given).outputs
    assert equal(got, system.references(given))


def test_equal_chips_are_planned_and_written_once(tmp_path: Path) -> None:
    system = star(tmp_path, "siracusa", 5)
    assert system.leads == (0, 1, 1, 1, 1)
    files = system.files()
    assert "chips/1/src/network.c" in files
    assert not any(name.startswith("chips/2/src/network.c") for name in files)
    weights = {files[f"chips/{chip}/src/network_weights.c"] for chip in range(1, 5)}
    assert len(weights) == 4
    programs = [plan.program for plan in system.plans]
    (expected,) = golden.system_outputs(system.system, golden.chip_programs(system.system, system.target), samples(1, 160)[0])
    assert np.array_equal(golden.system_outputs(system.system, programs, samples(1, 160)[0])[0], expected)


def test_the_host_model_counts_the_messages(tmp_path: Path) -> None:
    system = star(tmp_path, "siracusa", 3)
    system.write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    done = host.execute_application(host.build_application(tmp_path / "out"), tmp_path / "out", manifest, samples(2, 96), counters=True)
    links = [chip["link"] for chip in done.counters]
    size = 4 * 32
    assert links[0] == {"sends": 2, "receives": 2, "sent": 2 * size, "received": 2 * size}
    assert links[1] == links[2] == {"sends": 1, "receives": 1, "sent": size, "received": size}
    assert sum(message["bytes"] for message in manifest["messages"]) == 4 * size


@pytest.mark.parametrize(("memory", "room"), [("L2", 60000), ("L3", 12000)])
def test_predicted_bytes_are_those_that_the_host_model_counts(tmp_path: Path, memory: str, room: int) -> None:
    """On every chip and path; and chip to chip. Weights of 16 KiB are streamed through a smaller L2."""
    options = Options(memory={"l1": 8000, "l2": room}, default_memory=memory, engines=("cluster",))
    system = star(tmp_path, "siracusa", 3, 128, options)
    system.write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    done = host.execute_application(
        host.build_application(tmp_path / "out"), tmp_path / "out", manifest, samples(2, 3 * 128), counters=True
    )
    for counted, entry in zip(done.counters, manifest["chips"], strict=True):
        moved = {name: path["bytes_to_near"] + path["bytes_to_far"] for name, path in counted["engines"].items()}
        assert moved == entry["bytes"]
    assert sum(chip["link"]["sent"] for chip in done.counters) == manifest["bytes"]["link"] > 0
    assert manifest["bytes"]["L2_L1"] == sum(entry["bytes"]["L2_L1"] for entry in manifest["chips"]) > 0
    assert (manifest["bytes"]["L3_L2"] > 0) == (memory == "L3")


def test_queues_take_memory_at_both_ends(tmp_path: Path) -> None:
    """Two messages of 4 KiB to and from each other chip."""
    system = star(tmp_path, "siracusa", 3, width=1024)
    reserved = [plan.memory["L2"].reserved - system.target.memory("L2").reserved for plan in system.plans]
    assert reserved == [4 * 2 * 4096, 2 * 2 * 4096, 2 * 2 * 4096]
    assert system.plans[0].memory["L1"].reserved == system.target.memory("L1").reserved


def test_a_chip_that_ends_is_named_with_the_one_that_waits(tmp_path: Path) -> None:
    """Chip 0 finds one sample less in its file than all are told to expect."""
    system = star(tmp_path, "siracusa", 2)
    system.write(tmp_path / "out")
    application = host.build_application(tmp_path / "out")
    for chip, size in enumerate((4 * 64 * 4, 0)):
        (tmp_path / f"{chip}.in").write_bytes(bytes(size))
        arguments = ["application", "network", str(tmp_path / f"{chip}.in"), str(tmp_path / f"{chip}.out"), "2"]
        (tmp_path / f"{chip}.args").write_text("\n".join(arguments) + "\n")
    done = subprocess.run([str(application), str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 71
    assert "chip 0 ended with status 1" in done.stderr
    assert "chip 1 waits to receive tag 0 from chip 0, which has ended" in done.stderr


def written(folder: Path, target: str = "generic", count: int = 2) -> tuple[Distributed, dict[str, object]]:
    system = star(folder, target, count)
    system.write(folder / "out")
    return system, project.read_manifest(folder / "out")


@needs_mpi
@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_ranks_compute_what_threads_do(tmp_path: Path, target: str) -> None:
    system, manifest = written(tmp_path, target, 3)
    given = samples(4, 96)
    assert equal(host.Mpi(patience=60).run(tmp_path / "out", manifest, given).outputs, system.references(given))


@needs_mpi
def test_the_number_of_ranks_is_that_of_the_chips(tmp_path: Path) -> None:
    _, manifest = written(tmp_path)
    with pytest.raises(UsageError, match="the project has 2 chips, mpirun began 3 ranks"):
        host.Mpi(count=3, patience=20).run(tmp_path / "out", manifest, samples(1, 64))


@needs_mpi
def test_a_hostfile_names_machines(tmp_path: Path) -> None:
    system, manifest = written(tmp_path)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    got = host.Mpi(tmp_path / "hosts", 60).run(tmp_path / "out", manifest, samples(1, 64)).outputs
    assert equal(got, system.references(samples(1, 64)))
    with pytest.raises(UsageError, match="there is no hostfile"):
        host.Mpi(tmp_path / "none").run(tmp_path / "out", manifest, samples(1, 64))


def ranks_of(program: Path) -> dict[int, int]:
    """Process ids of the ranks that run a program."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "exe").resolve() == program:
                environment = (entry / "environ").read_bytes().split(b"\0")
                rank = next(text for text in environment if text.startswith(b"OMPI_COMM_WORLD_RANK="))
                found[int(rank.partition(b"=")[2])] = int(entry.name)
        except (OSError, StopIteration):
            continue
    return found


def strike(program: Path, number: signal.Signals) -> None:
    """Send a signal to rank 1 when it has run for a moment."""
    for _ in range(600):
        ranks = ranks_of(program)
        if 1 in ranks:
            time.sleep(1)
            os.kill(ranks[1], number)
            return
        time.sleep(0.1)


@pytest.mark.share(0.25)
@needs_mpi
@pytest.mark.parametrize(("number", "heard"), [(signal.SIGKILL, "chip 1 was lost"), (signal.SIGSTOP, "has not been heard of for 2 s")])
def test_a_rank_that_is_lost_is_named_with_the_one_that_waits(tmp_path: Path, number: signal.Signals, heard: str) -> None:
    """Killed, and merely silent."""
    _, manifest = written(tmp_path)
    program = host.build_application(tmp_path / "out", goal="mpi")
    given = samples(2, 64) * 200_000
    killer = threading.Thread(target=strike, args=(program.resolve(), number))
    killer.start()
    with pytest.raises(BuildError) as raised:
        patience = 2 if number is signal.SIGSTOP else 120
        host.execute_application(program, tmp_path / "out", manifest, given, start=host.Mpi(patience=patience).start)
    killer.join()
    assert heard in raised.value.what
    assert "chip 0 waits to" in raised.value.what and "chip 1" in raised.value.what


def test_inputs_stream_through_a_pipeline_in_order(tmp_path: Path) -> None:
    onnx.save(layered([64, 96, 128, 96, 64]), tmp_path / "m.onnx")
    options = Options(engines=("cluster",))
    system = chips.compile(tmp_path / "m.onnx", "siracusa", 3, partition="pipeline", **options.given())
    alone = chips.compile(tmp_path / "m.onnx", "siracusa", 1, **options.given())
    system.write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    given = samples(100, 64)
    got = host.Host().run(tmp_path / "out", manifest, given).outputs
    assert equal(got, alone.references(given))
    found = manifest["stream"]
    assert max(entry["cycles"] for entry in manifest["chips"]) == manifest["cycles"] == found["latency"]
    assert found["interval"] < 0.6 * found["latency"]
    assert len(found["idle"]) == 3 and min(found["idle"]) < 0.1 < max(found["idle"])


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_caches_live_on_the_chips_that_append_to_them(tmp_path: Path, target: str) -> None:
    """Steps of a sequence: every chip keeps the rows of its own heads."""
    onnx.save(decoder(Shape(width=64, inner=96, heads=4, layers=1, rows=1, past=True)), tmp_path / "m.onnx")
    options = Options() if target == "generic" else Options(engines=("cluster",))
    systems = [chips.compile(tmp_path / "m.onnx", target, count, dialect="integer", context=8, **options.given()) for count in (1, 2)]
    assert all(plan.program.dynamic_length is not None for plan in systems[1].plans)
    systems[1].write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    numbers = np.random.default_rng(4)
    given = [[numbers.integers(-50, 50, port["shape"]).astype(np.int8) for port in manifest["inputs"]] for _ in range(5)]
    expected = systems[0].references(given, sequence=True)
    assert not equal([np.stack(arrays) for arrays in zip(*expected, strict=True)], systems[0].references(given))
    assert equal(host.Host().run(tmp_path / "out", manifest, given, sequence=True).outputs, expected)


@pytest.mark.slow
@needs_mpi
def test_sixty_four_ranks_share_the_code_of_few_plans(tmp_path: Path) -> None:
    """A block of a decoder with 64 heads: 64 ranks compute what one chip does, with a plan for each height in the tree of chips."""
    path = tmp_path / "block.onnx"
    onnx.save(decoder(Shape(width=512, inner=2048, heads=64, layers=1, rows=1, past=True)), path)
    seconds, outputs = [], []
    for count in (1, 64):
        options = Options(engines=("cluster",), default_memory="L3")
        system = chips.compile(path, "siracusa", count, dialect="integer", context=128, **options.given())
        system.write(tmp_path / str(count))
        manifest = project.read_manifest(tmp_path / str(count))
        numbers = np.random.default_rng(2)
        given = [[numbers.integers(-50, 50, port["shape"]).astype(np.int8) for port in manifest["inputs"]]]
        outputs.append(host.Mpi().run(tmp_path / str(count), manifest, given).outputs)
        seconds.append(json.loads((tmp_path / str(count) / "timings.json").read_text())["total"])
    assert len(set(system.leads)) <= 2 + math.log2(64)  # the first chip, and leaders beside it
    assert all(np.array_equal(a, b) for a, b in zip(*outputs, strict=True))
    assert seconds[1] <= 4 * seconds[0]


@pytest.mark.slow
def test_values_that_templates_see_are_planned_once_and_written_apart(tmp_path: Path) -> None:
    """N-EUREKA adds the least weight of its chip, which is a number in its code and nothing to a plan.

    The last chips pass no copies on, so that their messages are alike. Parts of few rows lie at the same place in all of them.
    """
    model = decoder(Shape(64, 128, 8, 1, 2))
    limits = np.repeat(range(60, 100, 5), 8)  # of the columns of each chip
    for matrix in (t for t in model.graph.initializer if list(t.dims) == [64, 64]):
        values = np.clip(numpy_helper.to_array(matrix), -limits, limits).astype(np.float32)
        matrix.CopyFrom(numpy_helper.from_array(values, matrix.name))
    onnx.save(model, tmp_path / "model.onnx")
    compiled = chips.compile(tmp_path / "model.onnx", "siracusa", 8, dialect="integer")
    one, other = (compiled.plans[chip].program for chip in (5, 7))
    assert program_signature(one) == program_signature(other) and list(one.buffers) == list(other.buffers)
    assert (compiled.leads[5], compiled.leads[7]) == (5, 7)
    files = compiled.files()
    assert files["chips/5/src/network.c"] != files["chips/7/src/network.c"]


def save_cell(path: Path) -> tuple[Path, str]:
    """A recurrent layer between products, and the name of the output that is its next state."""
    n = Net()
    x, h = n.x(1, 1, 32), n.x(1, 1, 48)
    w, r = (n.c(n.random.standard_normal((1, 3 * 48, size)).astype(np.float32) / 8) for size in (32, 48))
    y, following = n.node("GRU", (n.Relu(n.MatMul(x, n.w(32, 32))), w, r, "", "", h), 2, hidden_size=48, linear_before_reset=1)
    return n.save(path, n.MatMul(n.Reshape(y, n.i(1, 48)), n.w(48, 64)), following), following


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_states_that_are_written_anew_stay_on_the_first_chip(tmp_path: Path, target: str) -> None:
    path, following = save_cell(tmp_path / "m.onnx")
    made = chips.compile(path, target, 2, partition="tensor", states={"x1": following})
    assert [len(graph.next_states) for graph in made.system.chips] == [1, 0]
    assert sum(bool(graph.nodes) for graph in made.system.chips) == 2
    found = made.verify()
    assert found.passed and found.samples > 1, found


def test_what_pipelines_and_streams_cannot_is_refused(tmp_path: Path) -> None:
    path, following = save_cell(tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match=r"the network keeps the state x1 \(state\), and a pipeline's stages"):
        chips.compile(path, "generic", 2, partition="pipeline", states={"x1": following})
    with pytest.raises(UsageError, match=r"stream with chips: a network that streams is computed by one chip\nLeave one of them out"):
        chips.compile(path, "generic", 2, stream="x0.2=4")
