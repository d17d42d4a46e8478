"""``perfgate bisect`` on real Paddle environments: a file in two of three makes every step take twice as long."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from helpers.trainers.contract import ROOT

pytestmark = [pytest.mark.training, pytest.mark.untimed]

CASE = "paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic"
# Half the speed: a busy machine makes no such difference. It computes and does not sleep, because a process that sleeps
# gets more of a busy core afterwards.
SLOW = """
import importlib.abc, importlib.util, sys, time


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "paddle.optimizer.momentum":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            inner, last = module.Momentum.step, []

            def step(self):
                inner(self)
                if last:
                    end = 2 * time.process_time() - last.pop()
                    while time.process_time() < end:
                        pass
                last.append(time.process_time())

            module.Momentum.step = step

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""
PROTOCOL = """protocols:
  few:
    warmup_steps: 2
    window_steps: 3
    runs: 1
"""
MATRIX = """matrix:
  cpu:
    - framework: paddle
      model: resnet50v1.5
      precision: fp32
      batch_size_per_card: [1]
      cards: [1]
      data: synthetic
      execution: dynamic
      protocol: few
"""


def environment(folder: Path, *, slow: bool) -> Path:
    """An environment with this one's packages."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    (packages / "sitecustomize.py").write_text((ROOT / "tests" / "small_images" / "sitecustomize.py").read_text())
    if slow:
        (packages / "made_slow.py").write_text(SLOW)
        (packages / "made_slow.pth").write_text("import made_slow\n")
    return folder


def perf_yaml(folder: Path) -> Path:
    text = (ROOT / "helpers/plan/defaults.yaml").read_text()
    for heading, content in (("protocols:\n", PROTOCOL), ("matrix:\n  cpu:\n", MATRIX)):
        assert text.count(f"\n{heading}") == 1
        text = text.replace(f"\n{heading}", f"\n{content}")
    path = folder / "perf.yaml"
    path.write_text(text)
    return path


@pytest.mark.timeout(1500)
def test_the_first_slow_environment_is_found_by_a_search_that_was_killed_in_between(tmp_path: Path) -> None:
    builds = [str(environment(tmp_path / name, slow=name != "a")) for name in ("a", "b", "c")]
    (tmp_path / "builds.txt").write_text("\n".join(builds))
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "helpers.commands", "bisect", "--config", str(perf_yaml(tmp_path))]
    command += ["--runs-dir", str(runs), "--allow-contention"]
    begin = ["--good", builds[0], "--bad", builds[-1], "--builds", str(tmp_path / "builds.txt"), "--case", CASE]

    # With cards of its own to lease it waits for no other session: that those make it slow does not matter here.
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = subprocess.Popen([*command, *begin], cwd=ROOT, env=variables, start_new_session=True)
    try:
        while first.poll() is None and len(list(runs.glob("*/*/r*/result.json"))) < 3:
            time.sleep(0.1)
    finally:
        first.kill()
        first.wait()
    kept = list(runs.glob("*/*/r*/result.json"))
    assert len(kept) >= 3
    (session,) = [path.parent.name for path in runs.glob("*/bisect.json")]

    done = subprocess.run(
        [*command, "--resume", session], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=1400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"FIRST BAD: {builds[1]} ("), done.stdout
    assert f"FIRST BAD: {builds[1]}" in (runs / session / "bisect.md").read_text()
    # The runs that were made before are used, and none of them is made again.
    assert all(path.exists() for path in kept)
    assert not list(runs.glob("*/*/r*.aside*/result.json"))
