"""A small language model writes a story on the host's model of a chip: compile the quantised network for prompts and for single
steps into one project, let its C write, and compare it with the float model on a text that it has not seen.

Exit status 1 when fewer than 90 % of the best tokens are those of the float model, or when perplexity is more than 5 % worse.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import onnxruntime
from tokenizer import END, Tokenizer

import deeploy
from deeploy.backend import project
from deeploy.backend.project import select_network
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / "build" / "story"
FLOAT_MODEL, INT8_MODEL = HERE / "story.onnx", HERE / "story_int8.onnx"
CONTEXT, ROWS = 256, 16
OPENING = "Emma had never been so happy"
MOST, TEMPERATURE, TOP_P, SEED = 225, 800, 900, 3  # temperature and top-p in thousandths
WINDOWS = 20  # pieces of the held-out text as long as the context
LEAST_EQUAL, MOST_WORSE = 0.90, 1.05


def compiled() -> deeploy.Compiled:
    """The project, in a fresh folder."""
    shutil.rmtree(WORK / "out", ignore_errors=True)
    WORK.mkdir(parents=True, exist_ok=True)
    print(f"compiling for siracusa: prompts {ROWS} tokens at a time, then one by one, caches of {CONTEXT} rows", flush=True)
    dims = {"prompt:rows": ROWS, "step:rows": 1}
    result = deeploy.compile({"prompt": INT8_MODEL, "step": INT8_MODEL}, "siracusa", dims=dims, context=CONTEXT)
    result.write(WORK / "out")
    return result


def written(application: Path, prompt: Sequence[int]) -> Iterator[int]:
    """The tokens that the project's C writes behind a prompt, as they come."""
    (WORK / "prompt.bin").write_bytes(struct.pack(f"={len(prompt)}i", *prompt))
    numbers = map(str, (MOST, END, TEMPERATURE, TOP_P, SEED))
    command = [str(application), "step", "--generate", str(WORK / "prompt.bin"), "/dev/stdout", *numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while token := process.stdout.read(4):
            yield struct.unpack("=i", token)[0]
    if process.returncode:
        sys.exit(process.returncode)


def tell(application: Path, tokenizer: Tokenizer) -> None:
    print(f"\n{OPENING}", end="", flush=True)
    for token in written(application, tokenizer.encode("\n" + OPENING)):
        print(tokenizer.pieces[token], end="", flush=True)
    print("\n")


def predicted(result: deeploy.Compiled) -> str:
    """Tokens per second and energy per token, as the planner's timing model says, averaged over the positions of the context."""
    plan = result.networks["step"].plan
    runs = [walk_plan(plan, past) for past in range(0, CONTEXT, ROWS)]
    cycles, energy, mhz = fmean(run.cycles for run in runs), fmean(run.energy.total for run in runs), runs[0].mhz
    prompt = walk_plan(result.networks["prompt"].plan, 0)
    return (
        f"at {mhz:g} MHz: {mhz * 1e6 / cycles:.0f} token/s and {energy:.1f} uJ/token predicted for writing ({cycles:.0f} cycles a token), "
        f"{mhz * 1e6 * ROWS / prompt.cycles:.0f} token/s for reading"
    )


def float_scores(pieces: np.ndarray) -> np.ndarray:
    """Scores [pieces, context, tokens] of the float model."""
    session = onnxruntime.InferenceSession(str(FLOAT_MODEL), providers=["CPUExecutionProvider"])
    past = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in session.get_inputs()[1:]}
    return np.concatenate([session.run(["scores"], {"tokens": piece[None], **past})[0] for piece in pieces])


def chip_scores(application: Path, pieces: np.ndarray) -> np.ndarray:
    """The same of the project's C: every piece is a sequence of inferences of the network for prompts."""
    entry = select_network(project.read_manifest(WORK / "out"), "prompt")
    results = []
    for piece in pieces:
        steps = [[rows[None]] for rows in piece.reshape(-1, ROWS)]
        results.append(
            host.execute_application(application, WORK / "out", entry, steps, ["--sequence", "1"]).outputs[0].reshape(CONTEXT, -1)
        )
    return np.stack(results)


def perplexity(scores: np.ndarray, following: np.ndarray) -> float:
    logs = scores.astype(np.float64)
    logs -= np.log(np.exp(logs - logs.max(-1, keepdims=True)).sum(-1, keepdims=True)) + logs.max(-1, keepdims=True)
    return float(np.exp(-np.take_along_axis(logs, following[..., None], -1).mean()))


def main() -> int:
    tokenizer = Tokenizer.load(HERE / "tokenizer.json")
    result = compiled()
    application = host.build_application(WORK / "out")
    tell(application, tokenizer)
    print(predicted(result))
    text = np.array(tokenizer.encode((HERE / "heldout.txt").read_text()), np.int64)
    starts = [i * CONTEXT for i in range(min(WINDOWS, (len(text) - 1) // CONTEXT))]
    pieces = np.stack([text[i : i + CONTEXT] for i in starts])
    following = np.stack([text[i + 1 : i + CONTEXT + 1] for i in starts])
    reference, scores = float_scores(pieces), chip_scores(application, pieces)
    equal = float(np.mean(reference.argmax(-1) == scores.argmax(-1)))
    before, after = perplexity(reference, following), perplexity(scores, following)
    print(f"held-out text, {pieces.size} tokens: {equal:.1%} of the best tokens are the float model's")
    print(f"perplexity {before:.2f} in float, {after:.2f} in the chip's 8 bits ({after / before - 1:+.1%})")
    print(f"\nthe C is in {WORK / 'out'}")
    return 0 if equal >= LEAST_EQUAL and after <= MOST_WORSE * before else 1


if __name__ == "__main__":
    sys.exit(main())
