"""Megatron-LM's own `pretrain`, from the wheel of megatron-core 0.19.2, on CPU processes: trained, saved, resumed.

The wheel is for Python 3.12 and can't be installed beside megatron-core 0.16; it is fetched by pip into a folder of
its own, or taken from the folder in $MEGATRON_LM, and the tests are skipped where it can't be had.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rank_processes import Ended, check_ended_well, run_ranks
from streams import samples, stream

from zephon import Loader

# One process for all of them, because they share a job's runs; and these take long on a busy machine.
pytestmark = [pytest.mark.xdist_group("megatron_lm"), pytest.mark.timeout(900)]
PROGRAM = Path(__file__).parents[1] / "megatron_lm_job.py"
WHEEL = "megatron-core==0.19.2"
# On the CPU there are no fused kernels; and one layer a model chunk.
ARGUMENTS = """
--num-layers 4 --hidden-size 16 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32
--lr 0.001 --tokenizer-type NullTokenizer --vocab-size 49999
--transformer-impl local --attention-backend unfused --distributed-backend gloo --use-cpu-initialization
--no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion
--no-gradient-accumulation-fusion --no-persist-layer-norm --clip-grad 0.0
--no-create-attention-mask-in-dataloader --eval-global-batch-size 8 --eval-iters 1 --eval-interval 2 --log-interval 1
--save-interval 100 --ckpt-format torch_dist --dataloader-type external --override-opt-param-scheduler
"""


@pytest.fixture(scope="module")
def megatron_lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with megatron/training in it."""
    if "MEGATRON_LM" in os.environ:
        return os.environ["MEGATRON_LM"]
    folder = tmp_path_factory.mktemp("megatron_lm")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.12", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        pytest.skip(f"pip can't get {WHEEL}: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(folder)
    return str(folder)


class Job:
    """A job of several runs, each a launch of Megatron-LM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = stream(
            folder / "data",
            sources={"code": samples("code", 200), "web": samples("web", 300)},
            settings={"lanes": 8, "global_batch_size": 8},
        )
        self.valid = {**self.config, "seed": 7, "lanes": None}
        for name, config in (("train", self.config), ("valid", self.valid)):
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))

    def run(self, name: str, world: int, *more: str) -> list[Ended]:
        out = self.folder / name
        out.mkdir()
        own = ["--zephon-config", str(self.folder / "train.yaml"), "--zephon-valid-config"]
        own += [str(self.folder / "valid.yaml"), "--save", str(self.folder / "checkpoints"), "--out", str(out)]
        return run_ranks(
            PROGRAM,
            [*ARGUMENTS.split(), *own, *more],
            world=world,
            folder=out / "processes",
            seconds=240,
            preload=("megatron_lm_wheel",),
        )

    def told(self, name: str, world: int) -> list[dict[str, Any]]:
        return [json.loads((self.folder / name / f"rank{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def job(megatron_lm: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    os.environ["MEGATRON_LM"] = megatron_lm
    job = Job(tmp_path_factory.mktemp("job"))
    # In tokens: batches of 4 sequences, then of 8 from the 8th on.
    ramp = ["--step-batch-size-schedule", "0:4 256:8"]
    load = ["--load", str(job.folder / "checkpoints")]
    # An interleaved pipeline, whose iterators come in lists.
    first = [*ramp, "--train-samples", "24", "--micro-batch-size", "1"]
    first += ["--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank", "2"]
    check_ended_well(job.run("first", 4, *first))
    second = [*ramp, "--train-samples", "48", "--iterations-to-skip", "6", "--micro-batch-size", "2", *load]
    check_ended_well(job.run("second", 2, *second, "--tensor-model-parallel-size", "2"))
    return job


@pytest.fixture(scope="module")
def expected(job: Job) -> dict[str, list[str]]:
    """Return the digests of the stream's rows, from a loader iterated by hand."""
    rows: dict[str, list[str]] = {"tokens": [], "labels": []}
    with Loader({**job.config, "micro_batch_size": 1}) as loader:
        for batch in loader:
            for key, digests in rows.items():
                digests.append(hashlib.sha256(batch[key][0].contiguous().numpy().tobytes()).hexdigest()[:16])
            if loader.consumed == 64:
                return rows
    raise AssertionError("the stream has an end")


def rows(told: list[dict[str, Any]], key: str) -> dict[int, list[str]]:
    """Return, by the trainer's counter at a step's beginning, the digests of its rows in the stream's order."""
    steps: dict[int, dict[int, str]] = {}
    for rank in told:
        seen: dict[int, int] = {}
        for batch in rank["train"]:
            for digest in batch.get(key, ()):
                number = seen.get(batch["at"], 0)
                seen[batch["at"]] = number + 1
                sequence = batch["at"] + rank["dp"] + number * rank["dp_size"]
                assert steps.setdefault(batch["at"], {}).setdefault(sequence, digest) == digest
    return {at: [digests[n] for n in sorted(digests)] for at, digests in steps.items()}


@pytest.mark.parametrize("key", ["tokens", "labels"])
def test_pretrain_trains_on_the_stream_s_global_batches(job: Job, expected: dict[str, list[str]], key: str) -> None:
    first = rows(job.told("first", 4), key)
    sizes = {at: len(digests) for at, digests in first.items()}
    assert sizes == {0: 4, 4: 4, 8: 8, 16: 8}
    second = rows(job.told("second", 2), key)
    # What iteration 6 would have had is consumed, and not trained on.
    assert sorted(second) == [24, 40]
    for at, digests in (first | second).items():
        assert digests == expected[key][at : at + len(digests)]


def test_every_evaluation_has_the_same_rows(job: Job) -> None:
    for rank in job.told("first", 4):
        if rank["pp"] == 0:
            given = [batch["tokens"] for batch in rank["valid"]]
            # After iterations 2 and 4, and at the end.
            assert len(given) >= 8
            assert given[:4] == given[4:8]
            assert len({row for digests in given[:4] for row in digests}) == 4


def test_megatron_s_own_function_writes_the_whole_state(job: Job) -> None:
    (path,) = (job.folder / "checkpoints" / "zephon" / "iter_0000004").rglob("*dprank000.pt")
    assert path.parent.name == "mp_rank_00_000"
    saved = torch.load(path, weights_only=True)["dataloader_state_dict"]
    assert saved["consumed_train_samples"] == saved["zephon"]["consumed"] == 24
    assert sorted(map(int, saved["zephon"]["lanes"])) == list(range(8))
    with Loader({**job.config, "micro_batch_size": 1}) as loader:
        for _ in loader:
            if loader.consumed == 24:
                break
        assert loader.state_dict() == saved["zephon"]


def test_a_missing_state_stops_the_run(job: Job) -> None:
    nowhere = ["--load", str(job.folder / "checkpoints"), "--dataloader-load", str(job.folder / "nowhere")]
    ended = job.run(
        "missing", 2, *nowhere, "--global-batch-size", "8", "--train-samples", "56", "--micro-batch-size", "2"
    )
    for status, out, err in ended:
        assert status == 1
        assert "StateError: the checkpoint of iteration 7 has no state of the stream" in err
        assert "skipping" not in (out + err).lower()
