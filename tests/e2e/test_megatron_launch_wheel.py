"""The launcher with Megatron-LM's own `pretrain`, of the wheel of megatron-core 0.19.2, on the CPU (`make wheels`)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from nemo_wheels import unpacked
from rank_processes import check_ended_well, run_ranks
from streams import samples, stream
from zephon_megatron.launch_yaml import read_launch

from zephon import Loader

TESTS = Path(__file__).parents[1]
# Without the launcher its datasets provider stops the run, since there is no --zephon-config.
SCRIPT = TESTS / "megatron_lm_job.py"
BATCH = 8
RUN = {
    "model": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 32},
    "tokens": {"tokenizer_type": "NullTokenizer", "vocab_size": 49999},
    # On the CPU there are no fused kernels.
    "kernels": {
        "transformer_impl": "local",
        "attention_backend": "unfused",
        "distributed_backend": "gloo",
        "use_cpu_initialization": True,
        "no_masked_softmax_fusion": True,
        "no_bias_gelu_fusion": True,
        "no_bias_dropout_fusion": True,
        "no_rope_fusion": True,
        "no_gradient_accumulation_fusion": True,
        "no_persist_layer_norm": True,
        "no_create_attention_mask_in_dataloader": True,
    },
    "train": {
        "seq_length": 32,
        "micro_batch_size": 2,
        "global_batch_size": BATCH,
        "lr": 0.001,
        "clip_grad": 0.0,
        "eval_iters": 0,
        "eval_interval": 100,
        "log_interval": 1,
        "override_opt_param_scheduler": True,
    },
    "checkpoint": {"save_interval": 100, "ckpt_format": "torch_dist"},
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("megatron-core", tmp_path_factory.mktemp("wheel"))


@pytest.mark.timeout(900)
def test_megatron_lm_s_own_pretrain_trains_on_the_yaml_s_data_and_resumes(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGATRON_LM", str(wheel))
    config = stream(
        tmp_path / "data",
        sources={"code": samples("code", 200), "web": samples("web", 300)},
        settings={"lanes": 8, "global_batch_size": BATCH},
    )
    (tmp_path / "stream.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    rows: dict[int, str] = {}
    for number, world in enumerate((1, 2)):
        out = tmp_path / f"run{number}"
        out.mkdir()
        words = ["--config", str(tmp_path / "run.yaml"), "data.backend=zephon", f"data.config={tmp_path}/stream.yaml"]
        words += [f"train.train_samples={(number + 1) * 2 * BATCH}", f"checkpoint.save={tmp_path}/checkpoints"]
        words += [f"checkpoint.load={tmp_path}/checkpoints"] if number else []
        words += [str(SCRIPT), "--rank", "{rank}", "--world", "{world}", "--rendezvous", "{rendezvous}"]
        ended = run_ranks(
            TESTS / "launched_rank.py",
            [*words, "--out", str(out)],
            world=world,
            folder=out / "processes",
            seconds=240,
            preload=("megatron_lm_wheel",),
        )
        check_ended_well(ended)
        for rank in range(world):
            told = json.loads((out / f"rank{rank}.json").read_text())
            seen: dict[int, int] = {}
            for batch in told["train"]:
                for digest in batch["tokens"]:
                    place = seen.get(batch["at"], 0)
                    seen[batch["at"]] = place + 1
                    rows[batch["at"] + place * world + told["dp"]] = digest
    with Loader({**config, "micro_batch_size": BATCH}) as loader:
        batches = iter(loader)
        expected = [row for _ in range(4) for row in next(batches)["tokens"]]
    assert [rows[place] for place in range(4 * BATCH)] == [
        hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest()[:16] for row in expected
    ]


PARSE = """
import argparse, json, sys
import megatron_lm_wheel
from megatron.training.arguments import add_megatron_arguments
for words in json.loads(sys.argv[1]):
    add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False)).parse_args(words)
"""


def test_megatron_lm_s_parser_knows_all_that_shipped_yamls_say(wheel: Path) -> None:
    files = sorted((TESTS.parent / "configs" / "megatron").glob("*.yaml"))
    words = [read_launch(file).arguments for file in files]
    assert len(words) >= 4
    environment = {**os.environ, "MEGATRON_LM": str(wheel), "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", PARSE, json.dumps(words)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 0, ended.stderr[-2000:]
