"""The functions of a training step in C: steps, checkpoints, and a network for inference that shares the weights."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import deeploy
from deeploy.training.step import TrainOptions, make_graphs
from tests.models import Net
from tests.training.networks import NETWORKS

MAIN = """
#ifdef RT_CHECKED
#define main host_main
#include "host/main.c"
#undef main
#else
#include <stdio.h>
#include <string.h>
static void host_open(int seed) { (void)seed; }
#endif

#include "infer.h"
#include "train.h"

static float x[3][4], scores[2][3][5];
static int32_t label[3] = {4, 1, 0};
static unsigned char checkpoints[2][TRAIN_CHECKPOINT_BYTES];

int main(void) {
    float losses[6];
    host_open(1);
    for (int i = 0; i < 12; i++) x[i / 4][i % 4] = (float)(i * 7 % 5) / 4.0f;
    if (train_init(0, 0) || infer_init(0, 0)) return 1;
    if (train_weights_get(checkpoints[0]) != DEEPLOY_ERROR_CONTEXT) return 2;
    if (infer_run_typed(x, scores[0])) return 3;
    for (int i = 0; i < 3; i++) if (train_train_step(x, label, 0.1f, &losses[i])) return 4;
    if (train_weights_get(checkpoints[0])) return 5;
    for (int i = 3; i < 5; i++) if (train_train_step(x, label, 0.1f, &losses[i])) return 6;
    memcpy(checkpoints[1], checkpoints[0], sizeof checkpoints[0]);
    checkpoints[1][sizeof checkpoints[1] - 1] ^= 1;
    if (train_init(0, 0) || infer_init(0, 0) || train_weights_set(checkpoints[1]) != DEEPLOY_ERROR_WEIGHTS || train_position()) return 7;
    if (train_weights_set(checkpoints[0])) return 8;
    if (train_train_step(x, label, 0.1f, &losses[5]) || losses[5] != losses[3]) return 9;
    if (infer_run_typed(x, scores[1]) || !memcmp(scores[0], scores[1], sizeof scores[0])) return 10;
    for (int i = 0; i < 5; i++) printf("%a\\n", (double)losses[i]);
    return 0;
}
"""


def run_main(project: Path, text: str) -> list[str]:
    """The lines that a program prints that is linked with the networks of a project."""
    main = project / "own_main.c"
    main.write_text(text)
    places = [project / folder for folder in ("src", "src/kernels", "runtime", "runtime/host")]
    sources = [path for place in places for path in sorted(place.glob("*.c")) if "int main(" not in path.read_text()]
    folders = sorted({path.parent for path in project.rglob("*.h")})
    warnings = "-Wall -Wextra -Wmissing-prototypes -Wconversion -Wsign-conversion -Wshadow -Werror"
    kind = "-DRT_CHECKED -Wno-unused-function" if (project / "runtime/host").is_dir() else "-DDEEPLOY_STATIC_ARENA"
    flags = f"-std=c11 -O1 -ffp-contract=off {warnings} {kind}"
    command = ["gcc", *flags.split(), *(f"-I{folder}" for folder in folders), str(main), *map(str, sources), "-lm", "-lpthread"]
    subprocess.run([*command, "-o", str(project / "own")], check=True)
    done = subprocess.run([str(project / "own")], check=False, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.split()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_a_checkpoint_goes_on_where_it_was_taken_and_inference_reads_the_weights(tmp_path: Path, target: str, optimizer: str) -> None:
    net = Net()
    model = net.save(tmp_path / "m.onnx", NETWORKS["Tanh"](net))
    graphs = make_graphs(model, TrainOptions("cross_entropy", optimizer=optimizer))
    for name, graph in (("train", graphs.step), ("infer", graphs.inference)):
        (tmp_path / f"{name}.onnx").write_bytes(graph.SerializeToString())
    compiled = deeploy.compile({name: tmp_path / f"{name}.onnx" for name in ("train", "infer")}, target)
    compiled.write(tmp_path / "out")
    losses = [float.fromhex(line) for line in run_main(tmp_path / "out", MAIN)]
    assert len(losses) == 5 and losses == sorted(losses, reverse=True) and losses[0] > losses[4]
