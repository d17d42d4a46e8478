"""What the fuzzers start from: small documents that the readers take, and words that matter to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from helpers.plan.baseline_files import PUBLISHED, UNIT
from helpers.plan.recorded import RECORDED_VERSION
from helpers.trainers.contract.case import FEATURES, DataSource, Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model
from helpers.trainers.contract.steplog import STEP_LOG_SCHEMA_VERSION, WARMUP, WINDOW, Footer, Header, Step

MACHINE = "fuzzed-machine"
_CASE = "paddle-vgg16-fp32-bs8-1x2-dali-static"
_HEADER = Header("j1", _CASE, 0, 0, 1, "h", 7, "paddle", "3.3.1", "abc", "cpu", {"tf32": "off", "cores": "0"})
_STEPS = (
    Step(0, 1, WARMUP, 0.0, 1.0, 8, 0.1, 6.9),
    Step(0, 2, WARMUP, 1.0, 2.0, 8, 0.1),
    Step(0, 3, WINDOW, 2.0, 3.5, 8, 0.25),
    Step(1, 1, WINDOW, 3.5, 4.5, 8, 0.1, 6.8),
)
_FOOTER = Footer("complete", peak_host_bytes=10)
LOG_RECORDS: tuple[dict[str, Any], ...] = (
    {**asdict(_HEADER), "schema": STEP_LOG_SCHEMA_VERSION, "kind": "header"},
    *({**asdict(step), "kind": "step"} for step in _STEPS),
    {**asdict(_FOOTER), "kind": "footer"},
)
PUBLISHED_DOCUMENT: dict[str, Any] = {
    "schema_version": 1,
    "target": "v100",
    "unit": UNIT,
    "environments": {
        "doc-1": {
            "document": "d", "describes": "m", "machine": {"cpu": "c"}, "software": {}, "topology": ["x"],
            "remarks": [],
        }
    },
    "figures": [
        {
            "case": _CASE, "source": "d", "table": "t", "rule": "unknown", "framework": "paddle",
            "framework_version": "2", "precision": "fp32", "precision_printed": "FP32", "strategy": None,
            "gpu": "V100-SXM2-32GB", "images_per_s": 100.75, "status": "gate", "note": "", "environment": "doc-1",
        }
    ],
}  # fmt: skip
SMALL_CONFIG = b"""\
frameworks: {paddle: {interpreter: /usr/bin/python3}}
data: {root: null}
protocols:
  cpu: {warmup_steps: 6, steady_window_steps: 2, most_warmup_steps: 10, window_steps: 5, runs: 2, rules: [dlperf-log]}
tolerances: {published: 0.05, recorded: 5.0e-3, cases: [{pattern: "paddle-*", recorded: 0.01}]}
budgets: {screen_runs: 3, first_runs: 5, pairs: 16, rotation: 3, repeats: 2, cases: [{pattern: "*", pairs: 4}]}
limits: {run_seconds: 100, stop_grace_seconds: 1.5}
contention: {max_foreign_share: 0.05}
history: {url: null}
matrix:
  cpu:
    - {framework: paddle, model: [vgg16], precision: fp32, batch_size_per_card: [1, 2], cards: 1, nodes: 1,
       data: dali, execution: static, auto: false, protocol: cpu}
short: [paddle-vgg16-fp32-bs1-1x1-dali-static]
machines: {node: {host: "node-[0-9]*", cpu_cards: 2, gate: [{target: cpu, cases: "*", needs: both}]}}
nodes:
  port: 2345
  connect_seconds: 3
  hosts:
    - {name: a, address: 10.0.0.1, interface: lo}
    - {name: b, address: b.local, data: /d, environment: {A: b},
       connect: [ssh, b], cpu_cards: 2}
"""
CONFIG_WORDS = (
    "&a ", "*a", "<<: *a", "<<: [*a, *a]", "!!int ", "!!float ", "!!bool ", "!!timestamp ", "!!binary ", "!!set ",
    "!!omap ", "!!python/object:os.system ", "? ", "- ", ": ", "{", "}", "[", "]", ",", "|\n", ">\n", "'", '"', "#",
    "%YAML 1.1\n", "---\n", "...\n", "~", "null", "true", "no", ".inf", "-.inf", ".nan", "1e400", "1.0e+400", "0x_",
    "0b_", "1:1:1", "1:1.5", "190:20:30", "2001-02-30", "2001-12-14t21:59:43.10-05:00", "\t", "\\x00", "\\u2028",
    "9" * 40, "frameworks", "data", "protocols", "tolerances", "budgets", "limits", "contention", "history", "matrix",
    "short", "machines", "nodes", "hosts", "gate", "cases", "pattern", "rules", "cpu", "runs", "warmup_steps",
)  # fmt: skip
CASE_WORDS = (
    "-", "x", "bs", *(each.value for kind in (Framework, Model, Precision, DataSource, Execution) for each in kind),
    *FEATURES, "0", "1", "1000000", "1000001", "٣", "²", "\n", "\0", "\u202e", "../", "$(id)",
)  # fmt: skip


def log_bytes(records: Sequence[Mapping[str, Any]]) -> bytes:
    """A step log's lines."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def recorded_document() -> dict[str, Any]:
    """A recorded file of one entry, for MACHINE."""
    return {
        "schema_version": RECORDED_VERSION,
        "machine_key": MACHINE,
        "unit": UNIT,
        "shared": {},
        "entries": {
            _CASE: {
                "images_per_s": 100.75, "rule": "wall-clock", "replicates": [100, 101.5],
                "protocol": {}, "tolerance": None, "environment": {"cpu": "x"}, "segment": {"driver": "1"},
                "provenance": {
                    "commit": "c", "date": "2026-11-21T02:03:04Z", "machine": "m", "reason": "first", "begins": "",
                },
                "status": "gate",
            }
        },
    }  # fmt: skip


def step_log_seeds() -> Iterator[bytes]:
    yield log_bytes(LOG_RECORDS)
    yield log_bytes([*LOG_RECORDS[:1], *LOG_RECORDS[-1:]])
    yield log_bytes(LOG_RECORDS[:3])
    # Long enough for every publisher's rule: three epochs of 500 steps.
    steps = [
        Step(n // 500, n % 500 + 1, WARMUP if n < 20 else WINDOW, n * 0.5, n * 0.5 + 0.4375, 1, 0.0)
        for n in range(1500)
    ]
    short = ({**asdict(step), "kind": "step"} for step in steps)
    yield log_bytes([LOG_RECORDS[0], *short, LOG_RECORDS[-1]])


def recorded_seeds() -> tuple[bytes, ...]:
    document = recorded_document()
    conflict = b"<<<<<<< ours\n" + json.dumps(document, indent=1).encode() + b"\n=======\n>>>>>>> theirs\n"
    return json.dumps(document).encode(), json.dumps({**document, "entries": {}}).encode(), conflict


def published_seeds() -> tuple[bytes, ...]:
    two = [{**PUBLISHED_DOCUMENT["figures"][0], "table": table} for table in ("t", "u")]
    shipped = (PUBLISHED / "a100.json").read_bytes()
    return json.dumps(PUBLISHED_DOCUMENT).encode(), json.dumps({**PUBLISHED_DOCUMENT, "figures": two}).encode(), shipped


def config_seeds() -> tuple[bytes, ...]:
    laughs = b"".join(b"a%d: &a%d {<<: [%s]}\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 3)) for n in range(1, 4))
    return SMALL_CONFIG, b"a0: &a0 {k: v}\n" + laughs, b"matrix: &m [*m]\n"


def case_seeds() -> tuple[bytes, ...]:
    ids = (_CASE, "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static", "pytorch-vgg16-amp-bs32-1x8-native-compile-auto")
    return tuple(each.encode() for each in ids)


def words(*documents: object) -> tuple[str, ...]:
    """Every key and text of the documents, as JSON writes them."""
    found: set[str] = set()

    def gather(value: object) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                found.add(json.dumps(key))
                gather(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                gather(each)
        elif isinstance(value, str):
            found.add(json.dumps(value))

    gather(documents)
    return tuple(sorted(found))
