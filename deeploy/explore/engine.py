"""The chosen set as an engine description, which a target includes (``deeploy.ir.array``)."""

from __future__ import annotations

import re

from deeploy.documents import Document


def engine_description(study: Document) -> str:
    """The largest set of a study (``deeploy.explore.study.describe_study``, with ``models``) as TOML."""
    best = study["sets"][-1]
    models = ", ".join(_plain_comment(model) for model in study["models"])
    lines = [
        f"# {best['configs']} spatial unrollings chosen by deeploy explore for {models}; objective {study['objective']}.",
        f'name = "{name_of(study)}"',
        f"pes = {study['pes']}",
    ]
    for unrolling in best["unrollings"]:
        factors = {loop: factor for loop, factor in unrolling["factors"].items() if factor > 1}
        inside = ", ".join(f"{loop} = {factor}" for loop, factor in factors.items())
        label = "_".join(f"{loop.lower()}{factor}" for loop, factor in factors.items()) or "one"
        lines += ["", "[[configuration]]", f'name = "{label}"', f"unrolling = {{ {inside} }}"]
    return "\n".join(lines) + "\n"


def name_of(study: Document) -> str:
    """The name of the hardware as that of an array: a letter, then letters, digits and underscores."""
    name = re.sub(r"\W", "_", study["hardware"], flags=re.ASCII)
    return name if name[:1].isalpha() else f"array_{name}"


def _plain_comment(text: str) -> str:
    """Fit for a comment."""
    return text.encode("unicode_escape").decode("ascii")
