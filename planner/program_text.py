"""All programs of a plan as JSON at once: a large job has 2,000 workers with some 150 instructions each.

The same bytes as ``json`` makes of :meth:`planner.program.Program.to_dict` with the plan's id in front, written in one
compiled pass; every text but numbers is prepared before.
"""

from __future__ import annotations

import zlib

import numpy as np
from numba import njit

from planner.byte_writer import Bytes, join_arrays, num_digits, put_bytes, put_number, put_operation, to_array
from planner.operation import Kind, Worker
from planner.program import AllReduce, GlobalBarrier, OptimizerStep
from planner.programs import Opcode, Programs
from planner.schedule import IntColumn

COMPRESSION = 6
"""Level at which programs are compressed: a program is some 4 kB, and fetched once by each rank."""

_LETTERS = to_array("".join(kind.name for kind in Kind).encode("ascii"))
_WORDS = ("RECV_", "COMPUTE ", "SEND_", " from ", " to ")
_COMPUTE, _SEND, _ALL_REDUCE = int(Opcode.COMPUTE), int(Opcode.SEND), int(Opcode.ALL_REDUCE)
_GZIP = 16 + zlib.MAX_WBITS


def render_programs(programs: Programs, plan_id: str) -> dict[Worker, bytes]:
    """Programs of all live workers as JSON: ``{"plan_id":"...","worker":"1/2","instructions":["COMPUTE 2F1.0",...]}``.

    Parameters
    ----------
    programs
        The programs.
    plan_id
        Id of the plan that they carry out, hexadecimal digits.

    Returns
    -------
    dict
        By worker, ascending.
    """
    workers = list(programs.workers())
    index = np.array([w.pipeline * programs.num_slots + w.slot for w in workers], dtype=np.int64)
    heads, head_ends = join_arrays(
        [f'{{"plan_id":"{plan_id}","worker":"{worker}","instructions":['.encode("ascii") for worker in workers]
    )
    lasts, last_ends, last_of_row = _last_instructions(programs)
    words, word_ends = join_arrays([word.encode("ascii") for word in _WORDS])
    buffer = np.empty(_size_limit(programs, len(heads), int(np.diff(last_ends).max(initial=0))), dtype=np.uint8)
    ends = _write(
        index,
        heads,
        head_ends,
        lasts,
        last_ends,
        last_of_row,
        words,
        word_ends,
        _LETTERS,
        programs.num_slots,
        programs.offsets,
        programs.opcode,
        programs.kind,
        programs.stage,
        programs.pipeline,
        programs.microbatch,
        programs.peer,
        buffer,
    )
    text = buffer[: ends[-1]].tobytes()
    return {
        worker: text[begin:end]
        for worker, begin, end in zip(workers, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    }


def compress_programs(rendered: dict[Worker, bytes]) -> dict[Worker, bytes]:
    """Each program as gzip bytes, which depend on the program alone."""
    return {worker: _gzip(text) for worker, text in rendered.items()}


def _gzip(text: bytes) -> bytes:
    compressor = zlib.compressobj(COMPRESSION, zlib.DEFLATED, _GZIP)
    return compressor.compress(text) + compressor.flush()


def _last_instructions(programs: Programs) -> tuple[Bytes, IntColumn, IntColumn]:
    """Texts of the instructions beside messages and computations, where each begins, and which of them each row has."""
    rows = np.flatnonzero(programs.opcode >= _ALL_REDUCE)
    slot = (np.searchsorted(programs.offsets, rows, side="right") - 1) % programs.num_slots
    kinds = np.stack([slot, programs.opcode[rows], programs.stage[rows]], axis=1)
    distinct, which = np.unique(kinds, axis=0, return_inverse=True)
    peers = [programs.live_pipelines(slot) for slot in range(programs.num_slots)]
    parts = []
    for slot, opcode, stage in distinct.tolist():
        if opcode == Opcode.ALL_REDUCE:
            parts.append(str(AllReduce(stage, peers[slot], programs.gradient_weight)))
        else:
            parts.append(str(GlobalBarrier()) if opcode == Opcode.GLOBAL_BARRIER else str(OptimizerStep(stage)))
    last_of_row = np.zeros(programs.num_instructions, dtype=np.int64)
    last_of_row[rows] = which.reshape(-1)
    return *join_arrays([part.encode("ascii") for part in parts]), last_of_row


def _size_limit(programs: Programs, heads: int, longest: int) -> int:
    """Bytes that all programs take at most."""
    digits = sum(map(num_digits, (programs.stage, programs.pipeline, programs.microbatch)))
    digits += len(str(programs.num_pipelines)) + len(str(programs.num_slots))
    message = digits + max(map(len, _WORDS[:3])) + max(map(len, _WORDS[3:])) + len('"F F.",/')
    is_last = programs.opcode >= _ALL_REDUCE
    num_last = int(is_last.sum())
    return (
        heads + 2 * len(programs.offsets) + num_last * (longest + 3) + (programs.num_instructions - num_last) * message
    )


@njit(cache=True)
def _write(
    workers: IntColumn,
    heads: Bytes,
    head_ends: IntColumn,
    lasts: Bytes,
    last_ends: IntColumn,
    last_of_row: IntColumn,
    words: Bytes,
    word_ends: IntColumn,
    letters: Bytes,
    num_slots: int,
    offsets: IntColumn,
    opcode: IntColumn,
    kind: IntColumn,
    stage: IntColumn,
    pipeline: IntColumn,
    microbatch: IntColumn,
    peer: IntColumn,
    buffer: Bytes,
) -> IntColumn:
    """Write all programs; returns where each begins, and where the last ends."""
    ends = np.zeros(len(workers) + 1, np.int64)
    at = 0
    for n in range(len(workers)):
        at = put_bytes(buffer, at, heads, head_ends[n], head_ends[n + 1])
        begin, end = offsets[workers[n]], offsets[workers[n] + 1]
        for row in range(begin, end):
            if row > begin:
                buffer[at] = 44
                at += 1
            buffer[at] = 34
            at += 1
            code = opcode[row]
            if code >= _ALL_REDUCE:
                which = last_of_row[row]
                at = put_bytes(buffer, at, lasts, last_ends[which], last_ends[which + 1])
            else:
                letter = letters[kind[row]]
                at = put_bytes(buffer, at, words, word_ends[code], word_ends[code + 1])
                if code != _COMPUTE:
                    buffer[at] = letter
                    buffer[at + 1] = 32
                    at += 2
                at = put_operation(buffer, at, stage[row], letter, pipeline[row], microbatch[row])
                if code != _COMPUTE:
                    way = 4 if code == _SEND else 3
                    at = put_bytes(buffer, at, words, word_ends[way], word_ends[way + 1])
                    at = put_number(buffer, at, peer[row] // num_slots)
                    buffer[at] = 47
                    at = put_number(buffer, at + 1, peer[row] % num_slots)
            buffer[at] = 34
            at += 1
        buffer[at] = 93
        buffer[at + 1] = 125
        at += 2
        ends[n + 1] = at
    return ends
