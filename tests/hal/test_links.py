"""What can go wrong with messages between chips, and that the host model or the receiver notices: emitted code with one mistake each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deeploy.backend import project
from deeploy.errors import BuildError
from deeploy.execution.runners import host
from tests.e2e.systems import samples, star

CODE, MESSAGES = "chips/1/src/network.c", "chips/1/src/messages.c"  # chip 1 receives, multiplies and sends; chip 2 has the same code


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of three chips that runs."""
    folder = tmp_path_factory.mktemp("links")
    system = star(folder, "siracusa", 3)
    system.write(folder / "out")
    got = host.Host().run(folder / "out", project.read_manifest(folder / "out"), samples(1, 96)).outputs
    assert got[0][0].tobytes() == system.references(samples(1, 96))[0][0].tobytes()
    return folder / "out"


MUTANTS = {
    "sent while a transfer still writes it": (
        (CODE, "    rt_send(", "    rt_store_run(DMA_L2_L1, 3, self->l1 + AT_T12_WEIGHTS, self->l2 + AT_T12, 128);\n    rt_send("),
        "What a transfer moves is left alone",
    ),
    "sent although nobody wrote it": (
        (CODE, "    rt_store_run(DMA_L2_L1, OUT, ", "    if (0) rt_store_run(DMA_L2_L1, OUT, "),
        "What is sent was written in this inference",
    ),
    "sent beyond its block": ((CODE, "tag, x, 128);", "tag, x, 1 << 20);"), "stay within one"),
    "received where only reading is allowed": (
        (
            CODE,
            "int8_t *const y = (int8_t *)(self->l2 + AT_T8_QUANTISED);",
            "(void)self;\n    int8_t *const y = (int8_t *)(rt_address)network_constant_t12_weights;",
        ),
        "Constants and inputs are only read",
    ),
    "received in a far level": (
        (
            CODE,
            "int8_t *const y = (int8_t *)(self->l2 + AT_T8_QUANTISED);",
            "(void)self;\n    int8_t *const y = (int8_t *)rt_arena(LEVEL_L3);",
        ),
        "Links reach arenas and announced arrays of near levels",
    ),
    "fewer bytes than expected": ((CODE, "tag, x, 128);", "tag, x, 64);"), "chip 0 expects tag 2 of 128 bytes from chip 1"),
    "another tag": ((MESSAGES, "{0, 2}, /* Send */", "{0, 7}, /* Send */"), "which sends tag 7 of 128 bytes"),
    "nothing is sent": ((CODE, "    rt_send(", "    if (0) rt_send("), "waits to receive tag"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mistakes_with_messages_are_noticed(built: Path, tmp_path: Path, name: str) -> None:
    (file, right, wrong), noticed = MUTANTS[name]
    folder = tmp_path / "out"
    shutil.copytree(built, folder)
    source = (folder / file).read_text()
    assert source.count(right) == 1, name
    (folder / file).write_text(source.replace(right, wrong))
    manifest = project.read_manifest(folder)
    with pytest.raises(BuildError, match=noticed) as raised:
        host.execute_application(host.build_application(folder), folder, manifest, samples(1, 96))
    assert "chip 1" in raised.value.what or "chip 2" in raised.value.what
