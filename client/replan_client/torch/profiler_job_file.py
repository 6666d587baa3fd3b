"""Measured costs put into a job file's text, where the planner reads them.

The text is edited, not parsed and written anew, so that comments and everything else in a YAML file stay as they are: the
section ``stages`` is replaced (``stage_overrides`` with it, which may not stand beside it) or added at the end. What
``stage_costs`` says stays, and counts for what was not measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from replan_client.torch.profiler_errors import ProfileError

Cost = float | int | bool
"""A value of a stage's entry: microseconds, bytes, or whether a backward can be split."""

_REPLACED = ("stages", "stage_overrides")
_KEY = re.compile(r"""(?P<quote>["']?)(?P<key>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)[ ]*:(?=[ \t]|$)""")
_BELONGS_BEFORE = re.compile(r"[ \t]|- |-$|[\]}]")


def put_stages(text: str, stages: Sequence[Mapping[str, Cost]], *, comment: str | None = None) -> str:
    r"""Text of a job file with other stages.

    Parameters
    ----------
    text
        A job file in YAML or, where its first character is ``{``, JSON.
    stages
        One entry a stage in model order, as the section ``stages`` of a job file has them.
    comment
        One line to stand beside the section; JSON has no place for it.

    Raises
    ------
    ProfileError
        If the text is no job file.

    Examples
    --------
    >>> print(put_stages("schema_version: 1\nstages: []\n\n# six\nmicrobatches: 6\n", [{"forward_us": 1.5}]), end="")
    schema_version: 1
    stages:
      - forward_us: 1.5
    <BLANKLINE>
    # six
    microbatches: 6
    """
    if text.lstrip()[:1] == "{":
        return _put_into_json(text, stages)
    return _put_into_yaml(text, stages, comment)


def stages_section(stages: Sequence[Mapping[str, Cost]], *, comment: str | None = None) -> str:
    """Section ``stages`` of a job file, in YAML.

    Examples
    --------
    >>> print(stages_section([{"forward_us": 12.5, "splittable": False}], comment="measured"), end="")
    stages:  # measured
      - forward_us: 12.5
        splittable: false
    """
    lines = ["stages:" if comment is None else f"stages:  # {' '.join(comment.split())}"]
    for stage in stages:
        # JSON's numbers and booleans are YAML's too.
        fields = [f"{name}: {json.dumps(value)}" for name, value in stage.items()]
        lines += [f"  - {fields[0]}", *(f"    {field}" for field in fields[1:])]
    return "\n".join(lines) + "\n"


def _put_into_json(text: str, stages: Sequence[Mapping[str, Cost]]) -> str:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ProfileError(
            f"the job file begins like JSON but is none: {error}", hint="write YAML one key a line, or JSON"
        ) from error
    kept = {key: value for key, value in document.items() if key not in _REPLACED}
    return json.dumps({**kept, "stages": [dict(stage) for stage in stages]}, indent=2) + "\n"


def _put_into_yaml(text: str, stages: Sequence[Mapping[str, Cost]], comment: str | None) -> str:
    sections = _sections(text)
    names = [name for name, _ in sections if name is not None]
    if "schema_version" not in names:
        raise ProfileError(
            f"the text has the keys {names[:12]}; expected a job file with schema_version at the beginning of a line",
            hint="a job file lists its keys one a line without indentation",
        )
    section = stages_section(stages, comment=comment)
    written: list[str] = []
    for name, lines in sections:
        if name not in _REPLACED:
            written.append(lines)
        elif section:
            written.append(section)
            section = ""
    if section:
        before = "".join(written)
        written = [before if before.endswith("\n") else before + "\n", "\n", section]
    return "".join(written)


def _sections(text: str) -> list[tuple[str | None, str]]:
    """Top-level keys with the lines that belong to each; comments and blank lines stand apart, without a key.

    Raises
    ------
    ProfileError
        If a line is neither.
    """
    sections: list[tuple[str | None, str]] = []
    between = ""
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(keepends=True), start=1):
        bare = line.rstrip()
        match = _KEY.match(line)
        if not bare or bare.startswith("#") or (bare == "---" and not sections):
            between += line
        elif match is not None:
            sections += [(None, between), (match["key"], line)]
            between = ""
        elif sections and _BELONGS_BEFORE.match(bare):
            name, lines = sections[-1]
            sections[-1] = (name, lines + between + line)
            between = ""
        else:
            raise ProfileError(
                f"line {number} of the job file, {bare[:40]!r}, is neither a key, a comment nor indented",
                hint="one document, its keys one a line without indentation",
            )
    return [*sections, (None, between)]
