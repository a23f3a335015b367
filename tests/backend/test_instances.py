"""Several instances of one network: independent on a flat memory, in turns and in threads; a rule where memories are the machine's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.backend import project
from deeploy.execution.runners import host
from tests.e2e import decoders
from tests.execution.simulation import nets
from tests.models import save_graph

STEPS, CONTEXT, TOKENS = 6, 8, 40
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

# Every instance has a file of inputs, step by step, and writes one of outputs; "threads" runs each in a thread of its own.
PROGRAM = """
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

enum { INSTANCES = 2, STEPS = %(steps)d };

struct job {
    struct network_instance instance;
    FILE *in, *out;
    void *inputs[NETWORK_INPUTS], *outputs[NETWORK_OUTPUTS];
};

static void step(struct job *job) {
    for (int i = 0; i < NETWORK_INPUTS; i++) {
        if (fread(job->inputs[i], network_inputs[i].bytes, 1, job->in) != 1) exit(1);
    }
    if (network_instance_run(&job->instance, (const void *const *)job->inputs, job->outputs)) exit(2);
    for (int i = 0; i < NETWORK_OUTPUTS; i++) {
        if (fwrite(job->outputs[i], network_outputs[i].bytes, 1, job->out) != 1) exit(3);
    }
}

static void *steps(void *job) {
    for (int s = 0; s < STEPS; s++) step(job);
    return 0;
}

int main(int argc, char **argv) {
    static struct job jobs[INSTANCES];
    pthread_t threads[INSTANCES];
    for (int k = 0; k < INSTANCES; k++) {
        struct job *const job = &jobs[k];
        void *const arena = aligned_alloc(64, (NETWORK_ARENA_BYTES + 63) / 64 * 64);
        if (network_instance_run(&job->instance, (const void *const *)job->inputs, job->outputs) != DEEPLOY_ERROR_NOT_INITIALISED) return 4;
        if (network_instance_init(&job->instance, 0, 0) != DEEPLOY_ERROR_ARENA) return 5;
        if (!arena || network_instance_init(&job->instance, arena, NETWORK_ARENA_BYTES)) return 6;
        memset(arena, 0xa5 + k, NETWORK_ARENA_BYTES);
        for (int i = 0; i < NETWORK_INPUTS; i++) job->inputs[i] = malloc(network_inputs[i].bytes);
        for (int i = 0; i < NETWORK_OUTPUTS; i++) job->outputs[i] = malloc(network_outputs[i].bytes);
        job->in = fopen(argv[2 + 2 * k], "rb");
        job->out = fopen(argv[3 + 2 * k], "wb");
    }
    if (argc == 6 && !strcmp(argv[1], "threads")) {
        for (int k = 0; k < INSTANCES; k++) pthread_create(&threads[k], 0, steps, &jobs[k]);
        for (int k = 0; k < INSTANCES; k++) pthread_join(threads[k], 0);
    } else {
        for (int s = 0; s < STEPS; s++) {
            for (int k = 0; k < INSTANCES; k++) step(&jobs[k]);
        }
    }
    for (int k = 0; k < INSTANCES; k++) fclose(jobs[k].out);
    return 0;
}
"""

# Two texts, by the default instance one after the other, and by two instances at once.
WRITERS = """
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "step.h"

enum { MOST = 9 };

static const int32_t prompts[2][6] = {{7, 3, 39, 0, 21, 5}, {1, 30, 2, 2, 17, 8}};
static int32_t tokens[2][MOST];

static struct deeploy_generation asked(int k) {
    return (struct deeploy_generation){
        .prompt = prompts[k], .prompt_tokens = 6, .most = MOST, .end = -1, .temperature = 900, .seed = 4, .tokens = tokens[k]};
}

static void *write(void *k) {
    static struct step_writer writers[2];
    static struct prompt_instance instances[2];
    struct prompt_instance *const own = &instances[*(int *)k];
    struct deeploy_generation text = asked(*(int *)k);
    void *const arena = aligned_alloc(64, (STEP_ARENA_BYTES + 63) / 64 * 64);
    if (prompt_instance_init(own, arena, STEP_ARENA_BYTES) || step_instance_init(own, arena, STEP_ARENA_BYTES)) exit(1);
    if (step_instance_generate(own, &writers[*(int *)k], &text) || text.count != MOST) exit(2);
    if (prompt_instance_position(own) != 6 + MOST - 1 || step_instance_seek(own, 6) || prompt_instance_position(own) != 6) exit(3);
    return 0;
}

static void print(void) {
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < MOST; i++) printf("%d ", (int)tokens[k][i]);
        printf("\\n");
    }
}

int main(void) {
    pthread_t threads[2];
    int numbers[2] = {0, 1};
    if (prompt_init(0, 0) || step_init(0, 0)) return 4;
    for (int k = 0; k < 2; k++) {
        struct deeploy_generation text = asked(k);
        if (step_seek(0) || step_generate(&text)) return 5;
    }
    print();
    for (int k = 0; k < 2; k++) pthread_create(&threads[k], 0, write, &numbers[k]);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], 0);
    print();
    return prompt_position() != 6 + MOST - 1;
}
"""


def _built(folder: Path, program: str, *flags: str) -> Path:
    """A program with the networks of a project for a flat memory."""
    (folder / "program.c").write_text(program)
    sources = [folder / "program.c", *folder.glob("src/*.c"), *folder.glob("src/kernels/*.c")]
    includes = [f"-I{path}" for path in (folder / "include", *sorted({p.parent for p in folder.glob("kernels/**/*.h")}))]
    command = ["gcc", *STRICT, *flags, *includes, *map(str, sources), "-lm", "-lpthread", "-o", str(folder / "program")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "program"


def _decoder(folder: Path) -> deeploy.Compiled:
    return deeploy.compile(decoders.decoder(folder, is_quantised=True), context=CONTEXT)


def _integers(folder: Path) -> deeploy.Compiled:
    """Twice a requantised product, whose results are the same on every machine."""
    generator = np.random.default_rng(3)
    arrays = {"w": generator.integers(-128, 128, (24, 16)), "mul": generator.integers(1, 9, 16), "add": generator.integers(-99, 99, 16)}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    nodes = [helper.make_node("Gemm", ["x", "w"], ["h"], "product")]
    nodes.append(helper.make_node("RequantShift", ["h", "mul", "add"], ["r"], "scale", div=1024, n_levels=256, signed=1))
    nodes.append(helper.make_node("Add", ["r", "r"], ["y"], "twice"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [4, 24]), ("y", [4, 16]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    save_graph(graph, folder / "model.onnx", 13)
    return deeploy.compile(folder / "model.onnx")


def _sequences(compiled: deeploy.Compiled) -> list[list[dict[str, np.ndarray]]]:
    """For each instance, inputs of every step."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(2):
        if compiled.network.program.dynamic_length is not None:
            steps = decoders.steps(STEPS, 1, CONTEXT)
            for step in steps:
                step["x"] = generator.normal(size=step["x"].shape).astype(np.float32)
        else:
            steps = [{"x": generator.integers(-128, 128, (4, 24)).astype(np.int8)} for _ in range(STEPS)]
        found.append(steps)
    return found


@pytest.mark.share(0.25)
@pytest.mark.parametrize("make", [_integers, _decoder])
def test_instances_are_independent(tmp_path: Path, make: object) -> None:
    """In turns, and in two threads under the sanitizer of threads: what each gives alone, bit for bit."""
    assert callable(make)
    compiled: deeploy.Compiled = make(tmp_path)
    compiled.write(tmp_path / "out")
    ports = compiled.network.inputs
    alone, files = [], []
    for number, steps in enumerate(_sequences(compiled)):
        samples = [[np.ascontiguousarray(step[port.name]) for port in ports] for step in steps]
        (tmp_path / f"{number}.in").write_bytes(b"".join(array.tobytes() for sample in samples for array in sample))
        options = ["--sequence"] if compiled.network.program.dynamic_length is not None else []
        entry = project.read_manifest(tmp_path / "out")
        results = host.execute_application(host.build_application(tmp_path / "out"), tmp_path / "out", entry, samples, options).outputs
        alone.append(b"".join(array[step].tobytes() for step in range(STEPS) for array in results))
        if not options:
            assert alone[-1] == b"".join(array.tobytes() for step in steps for array in compiled.interpret(list(step.values())))
        files += [str(tmp_path / f"{number}.in"), str(tmp_path / f"{number}.out")]
    assert alone[0] != alone[1]
    for how, flags in (("turns", ("-fsanitize=address,undefined",)), ("threads", ("-fsanitize=thread",))):
        program = _built(tmp_path / "out", PROGRAM % {"steps": STEPS}, *flags)
        subprocess.run([str(program), how, *files], check=True, capture_output=True)
        assert [(tmp_path / f"{number}.out").read_bytes() for number in range(2)] == alone, how


# The application of the host model runs this in place of the network: two instances in turns.
TURNS = """
#include "network.h"

static struct network_instance instances[2];

static enum deeploy_status init(void *arena, size_t bytes) {
    const enum deeploy_status status = network_instance_init(&instances[0], arena, bytes);
    return status ? status : network_instance_init(&instances[1], arena, bytes);
}

static enum deeploy_status run(const void *const *inputs, void *const *outputs) {
    static int turn;
    turn = !turn;
    %(check)s
    return network_instance_run(&instances[%(which)s], inputs, outputs);
}

static const struct deeploy_network network = {
    "network", NETWORK_ARENA_BYTES, NETWORK_INPUTS, NETWORK_OUTPUTS, network_inputs, network_outputs, init, run, 0, 0, 0, 0};
const struct deeploy_network *const deeploy_networks[] = {&network};
const int deeploy_network_count = 1;
"""


@pytest.mark.parametrize("has_states", [False, True])
def test_instances_share_the_memories_of_a_machine(tmp_path: Path, has_states: bool) -> None:
    """Inferences of several follow each other; of states there is room for those of the instance that was initialised last."""
    options = deeploy.Options(memory={"l1": 2500, "l2": 9000}, default_memory="L3")
    if has_states:
        compiled = deeploy.compile(decoders.decoder(tmp_path, is_quantised=True), "siracusa", context=CONTEXT, **options.given())
        check = "if (network_instance_run(&instances[0], inputs, outputs) != DEEPLOY_ERROR_STATES) return DEEPLOY_ERROR_NULL;"
        samples = decoders.steps(STEPS, 1, CONTEXT)
    else:
        compiled, check = nets.perceptron(tmp_path, options), ""
        samples = [{"x": np.random.default_rng(seed).normal(size=(5, 40)).astype(np.float32)} for seed in range(STEPS)]
    arrays = [[np.ascontiguousarray(sample[port.name]) for port in compiled.network.inputs] for sample in samples]
    results = []
    for folder in (tmp_path / "alone", tmp_path / "turns"):
        compiled.write(folder)
        if folder.name == "turns":
            (folder / "src" / "turns.c").write_text(TURNS % {"check": check, "which": 1 if has_states else "turn"})
        options_given = ["--sequence", "1"] if has_states and folder.name == "alone" else []
        entry = project.read_manifest(folder)
        results.append(host.execute_application(host.build_application(folder), folder, entry, arrays, options_given).outputs)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_default_and_own_instances_of_networks_that_share_states(tmp_path: Path) -> None:
    """Two texts are written at the same time, each with caches of its own, as the default instance writes them one by one."""
    path = decoders.writer(tmp_path)
    both = deeploy.compile({"prompt": path, "step": path}, dims={"prompt:rows": 4, "step:rows": 1}, context=24)
    both.write(tmp_path / "out")
    program = _built(tmp_path / "out", WRITERS, "-fsanitize=thread", "-DDEEPLOY_STATIC_ARENA")
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == 4 and lines[:2] == lines[2:] and lines[0] != lines[1]
    assert all(len(line.split()) == 9 for line in lines)
