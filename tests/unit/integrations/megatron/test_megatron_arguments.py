"""What Zephon adds to Megatron-LM's arguments, and what it reads of the others."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_tokenizer import make_small_tokenizer, write_small_tokenizer
from zephon_megatron import (
    Form,
    Place,
    add_zephon_arguments,
    make_provider,
    provider,
    train_valid_test_datasets_provider,
)
from zephon_megatron.arguments import (
    check_arguments,
    evaluation_config,
    form_of,
    load_folders,
    save_folder,
    training_config,
)
from zephon_megatron.lists import save_from_lists

from zephon import Config, ConfigError, load_config


def config(**settings: Any) -> Config:
    sources = {"web": {"path": "web.jsonl"}}
    return load_config({"sequence_length": 32, "lanes": 4, "sources": sources, **settings})


def test_options_are_added_to_a_parser_that_may_have_some() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataloader-save", default="elsewhere")
    words = ["--zephon-config", "a.yaml", "--zephon-set", "seed=3", "--zephon-set", "spread=2"]
    args = add_zephon_arguments(parser).parse_args(words)
    assert args.zephon_config == "a.yaml"
    assert args.zephon_set == ["seed=3", "spread=2"]
    assert (args.zephon_begins_at, args.dataloader_save, args.dataloader_load) == (0, "elsewhere", None)
    plain = add_zephon_arguments(argparse.ArgumentParser()).parse_args([])
    assert (plain.dataloader_save, plain.zephon_set, plain.zephon_valid_config) == (None, [], None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataloader_type": "cyclic"}, "--dataloader-type is cyclic; set it to external"),
        ({"full_validation": True}, "--full-validation isn't served"),
        ({"hybrid_context_parallel": True}, "--hybrid-context-parallel isn't served"),
        ({"gtp_weight_remat_size": 2}, "gtp_weight_remat_size=2"),
    ],
)
def test_what_isn_t_served_is_said(settings: dict[str, Any], message: str) -> None:
    check_arguments(Namespace(dataloader_type="external"))
    with pytest.raises(ConfigError, match=message):
        check_arguments(Namespace(**{"dataloader_type": "external", **settings}))


def test_megatron_s_switches_make_the_form(tmp_path: Path) -> None:
    assert form_of(Namespace(), config()) == Form()
    switches = Namespace(
        sft=True,
        reset_position_ids=True,
        reset_attention_mask=True,
        create_attention_mask_in_dataloader=True,
        eod_mask_loss=True,
        context_parallel_size=2,
    )
    with pytest.raises(ConfigError, match=r"--eod-mask-loss needs .* set tokenizer.eos"):
        form_of(switches, config())
    tokenizer = {"path": str(write_small_tokenizer(tmp_path)), "eos": "<|endoftext|>"}
    assert form_of(switches, config(tokenizer=tokenizer)) == Form(
        packed=True,
        reset_position_ids=True,
        create_attention_mask=True,
        reset_attention_mask=True,
        eod_token=make_small_tokenizer().token_to_id("<|endoftext|>"),
        cp_size=2,
    )
    assert form_of(Namespace(dataloader_inter_document_masking=True), config()).packed


def test_streams_must_fit_the_training() -> None:
    args = Namespace(seq_length=32, eval_iters=5, global_batch_size=8)
    assert training_config(args, config()) == config()
    with pytest.raises(ConfigError, match="sequence_length=16, but --seq-length is 32"):
        training_config(args, config(sequence_length=16))
    with pytest.raises(ConfigError, match="length=100, but Megatron-LM trains on an endless stream"):
        training_config(args, config(length=100))
    assert evaluation_config(args, config(length=100)) == config(length=100)
    made = evaluation_config(args, config())
    assert (made.length, made.restart, made.lanes) == (40, True, 4)
    made = evaluation_config(Namespace(**vars(args), eval_global_batch_size=2), config(lanes=None, global_batch_size=8))
    assert (made.length, made.restart, made.lanes) == (10, True, 2)


@pytest.mark.parametrize("by_options", [False, True])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"eval_iters": 3},
            r"eval_iters is 3, .* give one \(valid_config, on the command line --zephon-valid-config\)",
        ),
        (
            {"zephon_begins_at": 9},
            r"begins at consumed_train_samples=9, but only 4 .* set zephon_begins_at \(begins_at",
        ),
    ],
)
def test_errors_say_how_to_set_it_by_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_options: bool, settings: dict[str, Any], message: str
) -> None:
    written = tmp_path / "stream.yaml"
    written.write_text("{sequence_length: 32, lanes: 4, sources: {web: {path: web.jsonl}}}")
    monkeypatch.setattr(provider, "find_place", lambda groups, *, vp_stage, vp_size: Place())
    made = {"dataloader_type": "external", "seq_length": 32, "consumed_train_samples": 4, **settings}
    args = Namespace(
        **made, zephon_config=str(written), zephon_set=[], zephon_valid_config=None, zephon_test_config=None
    )
    monkeypatch.setattr(provider, "megatron_args", lambda: args)
    provide = train_valid_test_datasets_provider if by_options else make_provider(written)
    with pytest.raises(ConfigError, match=message) as raised:
        provide([1, 0, 0])
    assert not str(raised.value).startswith("--")
    args.zephon_config = None
    if by_options:
        with pytest.raises(
            ConfigError, match=r"no configuration .* pass --zephon-config .* or give pretrain make_provider"
        ):
            provide([1, 0, 0])


def test_folders_of_states() -> None:
    assert save_folder(Namespace(save=None)) is None
    assert save_folder(Namespace(save="s")) == "s/zephon"
    assert save_folder(Namespace(save="s", dataloader_save="d")) == "d"
    assert load_folders(Namespace(save="s", load="l")) == ["l/zephon", "s/zephon"]
    assert load_folders(Namespace(save="s", load="s")) == ["s/zephon"]
    assert load_folders(Namespace(save="s", load="l", dataloader_save="d")) == ["l/zephon", "d"]
    assert load_folders(Namespace(save="s", load="l", dataloader_load="x")) == ["x"]
    assert load_folders(Namespace()) == []


def test_saving_is_taught_lists_once() -> None:
    saved = []

    def maybe_save_dataloader_state(train_iterator: Any, iteration: int, path: str, *, tp_group: Any = None) -> None:
        """Save."""
        saved.append((train_iterator, iteration, path, tp_group))

    module: Any = ModuleType("checkpointing")
    module.maybe_save_dataloader_state = maybe_save_dataloader_state
    save_from_lists(module)
    taught = module.maybe_save_dataloader_state
    save_from_lists(module)
    assert module.maybe_save_dataloader_state is taught
    taught(["first", "second"], 3, "folder", tp_group="tp")
    taught("only", 4, "folder")
    assert saved == [("first", 3, "folder", "tp"), ("only", 4, "folder", None)]
    # A release without it has nothing to be taught.
    save_from_lists(ModuleType("older"))
