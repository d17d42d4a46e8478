"""How jobs are asked of a cluster, as perf.yaml states it."""

from pathlib import Path

import pytest

from helpers.plan.clusters import ClusterConfig, read_clusters
from helpers.plan.yaml_file import YamlValue, read_yaml
from helpers.trainers.contract.errors import ConfigError


def read(folder: Path, text: str) -> dict[str, ClusterConfig]:
    path = folder / "perf.yaml"
    path.write_text(text)
    return dict(read_clusters(YamlValue(str(path), "clusters", read_yaml(path).value)))


def test_everything_that_a_cluster_can_say_is_read(tmp_path: Path) -> None:
    text = (
        "c: {partition: gpu, account: perf, gres: 'gpu:a100', exclusive: false, container: /i.sqsh, "
        "options: ['--constraint=a&b', --no-kill]}\nd: {}"
    )
    assert read(tmp_path, text) == {
        "c": ClusterConfig("c", "gpu", "perf", "gpu:a100", False, "/i.sqsh", ("--constraint=a&b", "--no-kill")),
        "d": ClusterConfig("d"),
    }
    assert read_clusters(None) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("c: {queue: x}", "one of the keys partition, account"),
        ("c: {partition: 'a b'}", "clusters.c.partition"),
        ('c: {account: "a\\nb"}', "clusters.c.account"),
        ("c: {exclusive: 1}", "true or false"),
        ("c: {options: [-p gpu]}", "a long option of sbatch"),
        ('c: {options: ["--x=1\\n#SBATCH --y"]}', "a long option of sbatch"),
        ("c: {options: [--nodes=4]}", "perfgate submit does not state itself"),
        ("c: {options: [--export=ALL]}", "perfgate submit does not state itself"),
    ],
)
def test_what_sbatch_could_read_otherwise_is_an_error(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert told in str(raised.value)
