"""Mistakes that an engineer could make in the C of fused groups, of cores beside an accelerator, of attention and of states.

Each is one change of the C that is emitted for a small network: from a function on, the first match of a pattern is replaced. The
generated mutants (``tests.hal.mutate``) change one token each; these change what a loop, a core or a job does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.driver import layer_fusion as chains
from deeploy.options import Options
from tests.e2e import decoders
from tests.execution.simulation import nets
from tests.hal.mutate import Mutant
from tests.models import save_graph
from tests.schedule import test_alternating as alternating
from tests.schedule import test_layer_pipelining as behind
from tests.schedule import test_managed_fused_groups as managed


@dataclass(frozen=True)
class Change:
    """From the function ``within`` on, the first match of ``pattern`` becomes ``replacement``: the mistake ``what``."""

    what: str
    within: str
    pattern: str
    replacement: str

    def mutant(self, sources: Mapping[str, str]) -> Mutant:
        """The network's C with the change.

        Raises:
            AssertionError: nothing matches; the plan of the network has become another one.
        """
        path = next(name for name in sources if name.endswith(".c"))
        text = sources[path]
        function = re.search(rf"^(?:static \w+|TILED_LAYER) {self.within}\([^;]*?\) {{$", text, re.MULTILINE)
        assert function is not None, f"{self.what}: there is no function {self.within}"
        found = re.compile(self.pattern, re.DOTALL).search(text, function.start())
        assert found is not None, f"{self.what}: nothing in {self.within} matches {self.pattern}"
        new = found.expand(self.replacement)
        changed = text[: found.start()] + new + text[found.end() :]
        return Mutant(self.what, path, found.start(), found[0], new, {**sources, path: changed})


def attention(folder: Path) -> deeploy.Compiled:
    """Scores, softmax and values head by head; scores are spread over their range, so that all of them matter."""
    one, shape = managed.Quantised(), [8, 96, 16]

    def quantised(op: str, x: str, scale: float) -> str:
        return one.node(f"{op}Linear", x, one.constant(scale), one.constant(3, np.int8))

    scores = quantised("Quantize", one.node("MatMul", *(quantised("Dequantize", x, 0.008) for x in "qk")), 0.04)
    shares = one.node("Softmax", quantised("Dequantize", scores, 0.04), axis=-1)
    values = one.node("MatMul", quantised("Dequantize", quantised("Quantize", shares, 0.004), 0.004), quantised("Dequantize", "v", 0.02))
    one.nodes.append(helper.make_node("Identity", [quantised("Quantize", values, 0.01)], ["y"]))
    ports = [helper.make_tensor_value_info(name, TensorProto.INT8, [8, 16, 96] if name == "k" else shape) for name in "qkvy"]
    graph = helper.make_graph(one.nodes, "attention", ports[:3], ports[3:], one.constants)
    path = folder / "attention.onnx"
    save_graph(graph, path)
    return deeploy.compile(path, "siracusa", **managed.ATTENTION.given())


def sums(folder: Path) -> deeploy.Compiled:
    """Convolutions whose sums N-EUREKA computes and cores requantise, one closely behind the other."""
    return deeploy.compile(behind.save_convolutions(folder / "sums.onnx"), "siracusa")


def beside(folder: Path) -> deeploy.Compiled:
    """Rows that N-EUREKA and cores hand on to each other, in windows that move."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "SLOWER", 10.0)
        options = Options(memory={"l1": alternating.L1}, objective="traffic")
        return deeploy.compile(alternating.save_alternating(folder / "beside.onnx"), alternating.PORTABLE, **options.given())


def staged(folder: Path) -> deeploy.Compiled:
    """An inverted residual on cores: the first two layers fused by rows, activations that do not fit into L2, a sum at the end."""
    one = managed.Quantised()
    path = one.save(folder / "staged.onnx", one.block("x", 8), [1, 8, 24, 24], [1, 8, 24, 24])
    options = Options(memory={"l1": 12_000, "l2": 24_000}, engines=("cluster",), objective="traffic", default_memory="L3")
    return deeploy.compile(path, "siracusa", **options.given())


def doubled(folder: Path) -> deeploy.Compiled:
    """A product in tiles with two windows for each operand."""
    nodes = [nets.node("MatMul", "x w", "a"), nets.node("Tanh", "a", "y")]
    options = Options(memory={"l1": 1500}, buffering="double", default_memory="L3")
    return nets.compile_nodes(folder, nodes, {"x": [6, 20]}, {"y": [6, 31]}, {"w": [20, 31]}, options)


def states(folder: Path) -> deeploy.Compiled:
    """A step of a language model, whose keys and values stay in L1 from one step to the next."""
    return deeploy.compile(decoders.writer(folder), "siracusa", dims={"rows": 1}, context=24)


NETWORKS: Mapping[str, Callable[[Path], deeploy.Compiled]] = {
    made.__name__: made for made in (attention, sums, beside, staged, doubled, states)
}

_NO_BARRIER = r"\1(void)0;"
# Calls of a group begin with a barrier, and end with one.
_BARRIERS = r"rt_barrier\(\);(\s+network_kernel.*?body_{}\(self, time_step\);\s+)rt_barrier\(\);"
_VALUES = r"(body_MatMul_t9\(self, time_step\);\s+)rt_barrier\(\);"
_PARTS = r"\.core = rt_core\(\), \.cores = rt_machine\.cores"
_WAIT_OUT = r"rt_wait\(DMA_L2_L1, OUT\);"

CHANGES: Mapping[str, tuple[Change, ...]] = {
    "attention": (
        Change("cores compute a row of values of the next core too", "body_MatMul_t9", r"\.rows = (\d+)", r".rows = \1 + 1"),
        Change("cores compute a column of scores of the next core too", "body_MatMul_t2", r"\.columns = (\d+)", r".columns = \1 + 1"),
        Change("cores compute a row of shares of the next core too", "body_Softmax_t5", r"(1, 1, 1, 1, \d+)", r"\1 + 1"),
        Change("pairs of cores compute the same columns of scores", "body_MatMul_t2", r"= rt_core\(\)", "= rt_core() / 2"),
        Change("shares are computed before all scores are", "body_Softmax_t5", _BARRIERS.format("MatMul_t2"), _NO_BARRIER),
        Change("values are stored before all cores have written them", "layer_MatMul_t9", _VALUES, _NO_BARRIER),
        Change(
            "the last head has the values of the one before", "layer_MatMul_t9", r"time_step < 7(\) fetch_MatMul_t9)", r"time_step < 6\1"
        ),
        Change(
            "the next head is the same one",
            "layer_MatMul_t9",
            r"fetch_MatMul_t2\(self, time_step \+ 1\)",
            "fetch_MatMul_t2(self, time_step)",
        ),
        Change("there is no softmax", "layer_MatMul_t9", r"body_Softmax_t5\(self, time_step\);", "rt_barrier();"),
        Change("two cores share a scratch", "body_MatMul_t2", r"(_TURNED \+ \(uintptr_t\)\(rt_core\(\))( \*)", r"\1 / 2\2"),
        Change("two cores share sums of rows", "body_MatMul_t2", r"(_ROW_SUMS \+ \(uintptr_t\)\(rt_core\(\))( \*)", r"\1 / 2\2"),
        Change("values of another head are added up", "body_MatMul_t9", r"(__B \+ \(rt_address\)\()t % 2", r"\1(t + 1) % 2"),
        Change("the first store is overtaken by the last", "layer_MatMul_t9", _WAIT_OUT, "(void)0;"),
    ),
    "sums": (
        Change("cores complete what the job still writes", "layer_Conv_t12", r"rt_job_wait\(ACCELERATOR_npu\);", "(void)0;"),
        Change("jobs are one tile behind", "layer_Conv_t12", r"(body_Conv_t2\(self, larger\(time_step - )1", r"\g<1>2"),
        Change(
            "a job begins before its last rows are complete",
            "layer_Conv_t12",
            r"time_step \+ 1 >= 4 && time_step \+ 1 < 6\) body_Conv_t7\(self, larger\(time_step - 3",
            "time_step + 2 >= 4 && time_step + 2 < 6) body_Conv_t7(self, larger(time_step - 2",
        ),
        Change(
            "the next job begins before all cores are done", "layer_Conv_t12", r"(outputs_Conv_t2\([^;]*;\s+)rt_barrier\(\);", _NO_BARRIER
        ),
        Change("pairs of cores complete the same sums", "outputs_Conv_t2", _PARTS, ".core = rt_core() / 2, .cores = rt_machine.cores / 2"),
        Change("the last core does nothing of its own", "outputs_Conv_t2", _PARTS, ".core = rt_core() % 7, .cores = rt_machine.cores - 1"),
        Change("sums of the other tile are completed", "outputs_Conv_t7", r"(SUMS_2 \+ \(rt_address\)\()t ", r"\1(1 - t) "),
        Change("all jobs write one window", "body_Conv_t7", r"(SUMS_2 \+ \(rt_address\)\()t ", r"\g<1>0 "),
        Change("a job computes a row of the next one", "body_Conv_t2", r"\.height = n_oh", ".height = n_oh + (t == 1)"),
        Change("cores complete a row less", "outputs_Conv_t7", r"(\.extent = \{1, n_oh)", r"\1 - (t == 1)"),
        Change(
            "cores copy a row of the next core too", "body_copy_of_t4_transpose_dense", r"1, part_d1_n, 5", "1, part_d1_n + (t == 0), 5"
        ),
        Change("a job reads no row above", "body_Conv_t7", r"x_part_1_low = at_oh - 1", "x_part_1_low = at_oh"),
        Change("a job pads above all tiles", "body_Conv_t7", r"\.top = larger\(-x_part_1_low, 0\)", ".top = 1"),
        Change("weights of another layer", "body_Conv_t12", r"self->wm \+ \d+", "self->wm + 0"),
    ),
    "beside": (
        Change("cores move rows that others still read", "layer_Conv_t12", r"(slide_part\([^;]*;\s+)rt_barrier\(\);", _NO_BARRIER),
        Change("every core moves all rows", "layer_Conv_t12", r"(slide_part\([^;]*), \(uint32_t\)rt_core\(\), 8\)", r"\1, 0, 1)"),
        Change("rows move a step late", "layer_Conv_t12", r"time_step >= 5 && time_step % 4 == 1", "time_step >= 5 && time_step % 4 == 2"),
        Change("rows do not move", "layer_Conv_t12", r"slide_part\([^;]*;", "(void)0;"),
        Change("cores complete what the job still writes", "layer_Conv_t12", r"rt_job_wait\(ACCELERATOR_npu\)", "(void)0"),
        Change("every core starts the job", "layer_Conv_t12", r"if \(rt_core\(\) == 0\) (body_Conv_t2)", r"\1"),
        Change("pairs of cores compute the same columns", "body_Conv_t7", r"(part_\w+ = rt_core\(\))", r"\1 / 2"),
        Change(
            "a job begins before its row is there",
            "layer_Conv_t12",
            r"time_step >= 4\) body_Conv_t12\(self, time_step - 4",
            "time_step >= 4) body_Conv_t12(self, time_step - 3",
        ),
        Change("weights come after their first use", "layer_Conv_t12", r"time_step == 3\) supply", "time_step == 5) supply"),
        Change("a store is overtaken", "layer_Conv_t12", _WAIT_OUT, "(void)0;"),
    ),
    "staged": (
        Change("a window in L2 is overwritten while it leaves", "layer_Conv_t2", r"rt_wait\(DMA_L3_L2, OUT\);", "(void)0;"),
        Change(
            "a window leaves L2 before it has come",
            "layer_Conv_t2",
            r"unstage_Conv_t2\(self, time_step - 1\)",
            "unstage_Conv_t2(self, time_step)",
        ),
        Change("a window is fetched before it is in L2", "layer_Conv_t7", r"rt_wait\(DMA_L3_L2, IN\);", "(void)0;"),
        Change("cores compute a channel of the next core too", "body_Conv_t7", r"\.channels = (\d+)", r".channels = \1 + (rt_core() < 7)"),
        Change("cores compute a column of the next core too", "body_Conv_t2", r"\.out_width = (\d+)", r".out_width = \1 + (rt_core() < 7)"),
        Change(
            "cores compute a row of the next core too",
            "body_Conv_t12",
            r"\.out_height = part_oh_n",
            ".out_height = part_oh_n + (rt_core() % 4 < 3)",
        ),
        Change("cores add up an element of the next core too", "body_Add_t17", r"(1, 1, 1, 1, 1, \d+)", r"\1 + 1"),
        Change("tiles are stored over one another", "store_Conv_t7", r"t / 2 % 2 \* 4", "0"),
        Change("rows above are not fetched", "fetch_Conv_t7", r"x_1_low = at_oh - 1", "x_1_low = at_oh"),
        Change("rows above are padded nowhere", "body_Conv_t7", r"\.top = larger\(-x_part_1_low, 0\)", ".top = 0"),
        Change("two cores share a scratch", "body_Conv_t7", r"(_COLUMNS \+ \(uintptr_t\)\(rt_core\(\))( \*)", r"\1 / 2\2"),
        Change("a tile leaves before all cores have written it", "layer_Conv_t7", r"(body_Conv_t7[^;]*;\s+)rt_barrier\(\);", _NO_BARRIER),
    ),
    "doubled": (
        Change("both windows are one", "fetch_a_node", r"t % 2", "0"),
        Change("a tile is used before it has come", "layer_a_node", r"rt_wait\(DMA_L2_L1, IN\);", "(void)0;"),
        Change("a window is written before it has left", "layer_a_node", _WAIT_OUT, "(void)0;"),
        Change("the next tile is the same one", "layer_a_node", r"fetch_a_node\(self, t \+ 1\)", "fetch_a_node(self, t)"),
        Change("a tile leaves before all cores have written it", "layer_a_node", r"(body_a_node[^;]*;\s+)rt_barrier\(\);", _NO_BARRIER),
        Change("cores compute a row of the next core too", "body_a_node", r"\.rows = part_m_n", ".rows = part_m_n + (part_m + 1 < 6)"),
    ),
    "states": (
        Change("every step writes the first row", "layer_copy_of_t60_quantised", r"past_rows \* 8", "0"),
        Change("scores of the last row are missing", "body_MatMul_72", r"all_rows = self->all_rows", "all_rows = self->all_rows - 1"),
        Change(
            "cores compute a row of the next core too", "body_t71", r"part_d2_n \* 8", "(part_d2_n + (part_d2 + part_d2_n < all_rows)) * 8"
        ),
        Change("the softmax has a row of garbage", "body_Softmax_79", r"\.columns = all_rows", ".columns = all_rows + 1"),
        Change("all heads have the values of the first one", "body_MatMul_82", r"part_b1 \* 192", "0"),
        Change("both heads are computed by two cores", "body_Softmax_79", r"part_d1 = rt_core\(\)", "part_d1 = rt_core() / 2"),
    ),
}
