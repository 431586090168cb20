from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zephon import Loader, Topology, load_config, merge_states, stream_digest
from zephon.cli.main import main
from zephon.cli.state_file import read_state

Cli = Callable[..., "tuple[int, str, str]"]
ZEPHON = [sys.executable, "-c", "from zephon.cli.main import main; main()"]
DIGEST = re.compile(r"\b[0-9a-f]{32}\b")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration over two small sources, in a folder of its own."""
    rng = np.random.default_rng(5)
    for source in ("code", "web"):
        with (tmp_path / f"{source}.jsonl").open("w") as file:
            for _ in range(300):
                tokens = rng.integers(0, 1000, rng.integers(1, 80)).tolist()
                file.write(json.dumps({"tokens": tokens}) + "\n")
    path = tmp_path / "config.yaml"
    stage = "{kind: tokens, field: tokens}"
    path.write_text(
        f"""
        seed: 3
        global_batch_size: 8
        micro_batch_size: 4
        sequence_length: 64
        index_dir: {tmp_path / "index"}
        sources:
          web: {{path: {tmp_path / "web.jsonl"}, weight: 0.75, stage: {stage}, block_samples: 4}}
          code: {{path: {tmp_path / "code.jsonl"}, weight: 0.25, stage: {stage}, block_samples: 4}}
        backend: {{kind: inline, prefetch: 0}}
        device: cpu
        """
    )
    return path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command line; gives its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return code or 0, captured.out, captured.err

    return run


def test_index_counts_samples_and_blocks_of_each_source(config: Path, cli: Cli) -> None:
    code, out, err = cli("index", config)
    assert (code, err) == (0, "")
    assert re.search(r"^code +1 +300 +75 ", out, re.M)
    assert re.search(r"^web +1 +300 +75 ", out, re.M)


def test_index_takes_shards_without_a_configuration(config: Path, cli: Cli) -> None:
    code, out, _ = cli("index", config.parent / "web.jsonl", config.parent / "code.jsonl")
    assert code == 0
    assert re.search(r"^shards +2 +600 ", out, re.M)


def test_index_count_gives_the_length_of_the_finite_stream(config: Path, cli: Cli) -> None:
    code, out, _ = cli("index", config, "--count")
    assert code == 0
    counted = re.search(r"^sequences: ([\d,]+)$", out, re.M)
    assert counted is not None
    with Loader(load_config(config, ["length=count", "micro_batch_size=1"])) as loader:
        assert int(counted[1].replace(",", "")) == len(loader)


def test_run_digest_is_the_loaders(config: Path, cli: Cli) -> None:
    code, out, err = cli("run", config, "--steps", 3, "--dp-size", 2)
    assert (code, err) == (0, "")
    states = []
    for rank in range(2):
        with Loader(load_config(config), Topology(dp_rank=rank, dp_size=2)) as loader:
            for _, _batch in zip(range(3), loader, strict=False):
                pass
            states.append(loader.state_dict())
    digest = stream_digest(merge_states(states))
    assert re.search(rf"^digest +{digest} *$", out, re.M)
    assert re.search(r"^sequences +24 \(consumed: 24\)", out, re.M)
    assert re.search(r"^global batches +3 *$", out, re.M)
    assert re.search(r"^web +75\.00 %", out, re.M)


def test_run_goes_on_from_a_state_on_another_topology(config: Path, cli: Cli) -> None:
    folder = config.parent
    assert cli("run", config, "--steps", 5, "--state-out", folder / "whole")[0] == 0
    assert cli("run", config, "--steps", 2, "--dp-size", 2, "--state-out", folder / "cut")[0] == 0
    again = ["--dp-size", 4, "-o", "micro_batch_size=1", "--state-in", folder / "cut"]
    code, out, _ = cli("run", config, "--steps", 3, *again, "--state-out", folder / "joined")
    assert code == 0
    assert "24 (consumed: 40)" in out
    assert cli("state", "diff", folder / "whole", folder / "joined")[:2] == (0, "equal\n")


def test_states_of_single_ranks_merge_to_the_whole(config: Path, cli: Cli) -> None:
    folder = config.parent
    for rank in range(2):
        files = "--dp-size", 2, "--dp-rank", rank, "--state-out", folder / f"rank{rank}"
        code, out, _ = cli("run", config, "--steps", 2, *files)
        assert code == 0
        assert "lanes of other ranks are missing" in out
    assert cli("state", "merge", folder / "rank1", folder / "rank0", "--out", folder / "merged")[0] == 0
    assert cli("run", config, "--steps", 2, "--state-out", folder / "whole")[0] == 0
    assert read_state(folder / "merged") == read_state(folder / "whole")


def test_verify_finds_one_stream_in_every_combination(config: Path, cli: Cli) -> None:
    options = ["--dp-sizes", "1,2,4,8,16", "--backends", "inline,threads", "--workers", "1,2", "--prefetch", "0,2"]
    code, out, err = cli("verify", config, "--steps", 4, "-o", "global_batch_size=16", "-o", "lanes=8", *options)
    assert code == 0
    assert [line.partition(":")[0] for line in err.splitlines()] == [f"{n} of 30 done" for n in range(1, 31)]
    # 5 sizes, inline once and threads with 1 and 2 workers, 2 depths
    assert "30 ways, one stream: 4 global batches, 64 sequences" in out
    assert len(set(DIGEST.findall(out))) == 1


def test_verify_finds_one_stream_across_cuts(config: Path, cli: Cli) -> None:
    code, out, _ = cli("verify", config, "--steps", 7, "--dp-sizes", "1,4,2", "--resume-every", 2)
    assert code == 0
    assert "7 ways, one stream: 7 global batches, 56 sequences, cut every 2 steps" in out
    assert out.count("4 → 2 → 1") == 2


def test_verify_refuses_cuts_that_never_come(cli: Cli, config: Path) -> None:
    code, _, err = cli("verify", config, "--steps", 3, "--dp-sizes", "1,2", "--resume-every", 3)
    assert code == 2
    assert err == "zephon: --resume-every 3 cuts no run of --steps 3; set it lower than the number of steps\n"


@pytest.mark.slow
def test_verify_finds_one_stream_with_processes(config: Path, cli: Cli) -> None:
    options = ["--dp-sizes", "1,2", "--backends", "inline,processes", "--workers", "2"]
    code, out, _ = cli("verify", config, "--steps", 4, *options)
    assert code == 0
    assert "4 ways, one stream" in out


def test_verify_stops_at_the_end_of_a_finite_stream(config: Path, cli: Cli) -> None:
    finite = ["-o", "length=29", "-o", "lanes=4", "--dp-sizes", "1,2,4"]
    for cuts in ([], ["--resume-every", 2], ["--resume-every", 1]):
        code, out, _ = cli("verify", config, "--steps", 9, *finite, *cuts)
        assert code == 0
        assert "one stream: 9 global batches, 29 sequences" in out


def test_verify_exits_with_1_where_streams_differ(config: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing real makes them differ, so two ranks are given another seed.
    from zephon.cli import verify

    real = verify.run_rank

    def other_seed_on_two_ranks(config, topology, **options):  # type: ignore[no-untyped-def]
        if topology.dp_size == 2:
            config = load_config(config, ["seed=4"])
        return real(config, topology, **options)

    monkeypatch.setattr(verify, "run_rank", other_seed_on_two_ranks)
    code, out, _ = cli("verify", config, "--steps", 2, "--dp-sizes", "1,2,4", "--backends", "inline")
    assert code == 1
    assert re.search(r"^2 .* digest differs; rows differ *$", out, re.M)
    assert "1 of 3 ways differ" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "CONFIG", "--steps", "1", "--dp-sizes", "1,3"], "dp_size=3 and lanes=8 don't divide each other"),
        (["verify", "CONFIG", "--steps", "1", "--dp-sizes", "1,x"], "'x' is no whole number from 1 on"),
        (["verify", "CONFIG", "--steps", "1", "--dp-sizes", "16"], "dp_size=16 doesn't divide global_batch_size=8"),
        (["verify", "CONFIG", "--steps", "1", "--backends", "magic"], "--backends: unknown kind 'magic'"),
        (
            ["run", "CONFIG", "--steps", "1", "--dp-size", "4"],
            "global_batch_size=8 is no multiple of micro_batch_size=4",
        ),
        (
            ["run", "CONFIG", "--steps", "1", "--dp-size", "5"],
            "dp_size=5 and lanes=8 don't divide each other; dp sizes that work with global_batch_size=8: 1, 2, 4, 8",
        ),
        (["run", "CONFIG", "--steps", "1", "--dp-size", "2", "--dp-rank", "2"], "dp_rank=2 is outside 0..1"),
        (["run", "CONFIG", "--steps", "1", "-o", "sed=4"], "override 'sed=4': object contains unknown field `sed`"),
        (["run", "CONFIG", "--steps", "1", "--state-in", "none"], "can't read the state none"),
        (["run", "none.yaml", "--steps", "1"], "can't read the configuration none.yaml"),
        (["index", "CONFIG", "other.jsonl"], "is a configuration, and 1 more arguments follow"),
        (["index", "none.jsonl"], "matches no shard"),
        (["index", "data.jsonl", "--count"], "need a configuration"),
        (["pack", "none.jsonl", "--out", "CONFIG.packed"], "matches no shard"),
        (["state", "show", "CONFIG"], "holds no state"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(config: Path, cli: Cli, arguments: list[str], message: str) -> None:
    code, out, err = cli(*[argument.replace("CONFIG", str(config)) for argument in arguments])
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("zephon: ")
    assert err.count("\n") == 1


def test_pack_rewrites_shards_to_the_same_samples(config: Path, cli: Cli) -> None:
    folder = config.parent
    with gzip.open(folder / "web.jsonl.gz", "wb") as file:
        file.write((folder / "web.jsonl").read_bytes())
    code, out, _ = cli("pack", folder / "web.jsonl.gz", "--out", folder / "packed")
    assert code == 0
    assert "1 shard," in out
    assert re.search(r"^shards +1 +300 ", cli("index", folder / "packed")[1], re.M)


def test_a_command_line_that_fails_shows_no_traceback(config: Path) -> None:
    command = [*ZEPHON, "run", str(config), "--steps", "1", "-o", "sources.web.path=nowhere.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("zephon: ")
    assert done.stderr.count("\n") == 1


def test_help_needs_no_torch() -> None:
    command = [sys.executable, "-c", "import sys, zephon.cli.main; sys.exit('torch' in sys.modules)"]
    assert subprocess.run(command, check=False).returncode == 0


def test_an_interrupt_ends_with_130_and_no_traceback(config: Path) -> None:
    ready = config.parent / "index"
    command = [*ZEPHON, "run", str(config), "--steps", "100000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (ready.is_dir() and any(ready.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert (out, err) == ("", "")
