"""Megatron-LM's arguments: those that Zephon adds, and what it reads of the others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from zephon import Config, ConfigError
from zephon.tokenizer import tokenizer_plan
from zephon_megatron.batch import Form

# Where states go, below the checkpoints' folder, if nothing else is said.
FOLDER = "zephon"


def add_zephon_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add Zephon's options to Megatron-LM's parser and return it: an `extra_args_provider`.

    --zephon-config PATH          the training stream's configuration
    --zephon-set A.B=VALUE        an override of it; may be repeated
    --zephon-valid-config PATH    the validation stream's
    --zephon-test-config PATH     the test stream's
    --zephon-begins-at SAMPLES    consumed_train_samples at which the stream's first sequence is due (default 0): for a
                                  run that trained on other data before
    --dataloader-save FOLDER      where the stream's state goes with each checkpoint; default: zephon below --save
    --dataloader-load FOLDER      where it is looked for; default: zephon below --load, then --dataloader-save
    """
    group = parser.add_argument_group(title="zephon")
    group.add_argument("--zephon-config", metavar="PATH", help="configuration of the training stream")
    group.add_argument("--zephon-set", metavar="A.B=VALUE", action="append", default=[], help="override a setting")
    group.add_argument("--zephon-valid-config", metavar="PATH", help="configuration of the validation stream")
    group.add_argument("--zephon-test-config", metavar="PATH", help="configuration of the test stream")
    group.add_argument(
        "--zephon-begins-at",
        metavar="SAMPLES",
        type=int,
        default=0,
        help="consumed_train_samples at which the stream's first sequence is due",
    )
    for option, text in (
        ("--dataloader-save", "folder for the stream's state, with each checkpoint"),
        ("--dataloader-load", "folder where the stream's state is looked for"),
    ):
        # Other data loaders' scripts add the same ones.
        if not any(option in action.option_strings for action in parser._actions):
            group.add_argument(option, metavar="FOLDER", help=text)
    return parser


def check_arguments(args: Any) -> None:
    """Raise ConfigError for Megatron-LM settings that an external data loader can't serve."""
    kind = getattr(args, "dataloader_type", None)
    if kind != "external":
        raise ConfigError(
            f"--dataloader-type is {kind}; set it to external, so that Megatron-LM takes Zephon's batches"
        )
    for name in ("hybrid_context_parallel", "full_validation", "multiple_validation_sets", "perform_rl_step"):
        if getattr(args, name, False):
            raise ConfigError(f"--{name.replace('_', '-')} isn't served by zephon_megatron; leave it off")
    if getattr(args, "gtp_weight_remat_size", 1) not in (None, 1):
        raise ConfigError(
            f"gtp_weight_remat_size={args.gtp_weight_remat_size} isn't served by zephon_megatron; set it to 1"
        )


def form_of(args: Any, config: Config) -> Form:
    """Return the form of batches that Megatron-LM's switches ask for.

    Raises ConfigError where `--eod-mask-loss` is set and the configuration doesn't say which token that is.
    """
    eod = None
    if getattr(args, "eod_mask_loss", False):
        eod = None if config.tokenizer is None else tokenizer_plan(config.tokenizer)["eos"]
        if eod is None:
            raise ConfigError("--eod-mask-loss needs to know the token that ends a document; set tokenizer.eos")
    packed = is_packed(args)
    return Form(
        packed=packed,
        reset_position_ids=bool(getattr(args, "reset_position_ids", False)),
        # With packed rows get_batch passes a mask on to nobody who uses it, but wants one where it was announced.
        create_attention_mask=bool(getattr(args, "create_attention_mask_in_dataloader", False)),
        reset_attention_mask=bool(getattr(args, "reset_attention_mask", False)),
        eod_token=eod,
        cp_size=getattr(args, "context_parallel_size", 1),
    )


def is_packed(args: Any) -> bool:
    """Return whether get_batch wants documents' bounds for THD attention."""
    return bool(getattr(args, "sft", False) or getattr(args, "dataloader_inter_document_masking", False))


def training_config(args: Any, config: Config) -> Config:
    """Return the training stream's configuration. Raises ConfigError where lengths differ or the stream has an end."""
    if config.length is not None:
        raise ConfigError(f"length={config.length}, but Megatron-LM trains on an endless stream; set length: null")
    _check_length(args, config)
    return config


def evaluation_config(args: Any, config: Config) -> Config:
    """Return a validation or test stream's configuration: the same rows in each evaluation.

    A stream without a length is given that of one evaluation, eval_iters global batches.
    """
    _check_length(args, config)
    if config.length is not None:
        return config
    batch_size = getattr(args, "eval_global_batch_size", None) or args.global_batch_size
    return msgspec.structs.replace(
        config,
        length=max(1, args.eval_iters) * batch_size,
        restart=True,
        # A lane each for as many ranks as there may be.
        lanes=config.lanes or batch_size,
    )


def save_folder(args: Any) -> str | None:
    """Return the folder that the stream's states go to, or None where the run saves nothing."""
    chosen = getattr(args, "dataloader_save", None)
    if chosen or not getattr(args, "save", None):
        return chosen or None
    return str(Path(args.save) / FOLDER)


def load_folders(args: Any) -> list[str]:
    """Return the folders where the stream's state may be, the likeliest first."""
    chosen = getattr(args, "dataloader_load", None)
    if chosen:
        return [chosen]
    found = [str(Path(args.load) / FOLDER)] if getattr(args, "load", None) else []
    saved = save_folder(args)
    return [*found, saved] if saved and saved not in found else found


def _check_length(args: Any, config: Config) -> None:
    if config.sequence_length != args.seq_length:
        raise ConfigError(
            f"sequence_length={config.sequence_length}, but --seq-length is {args.seq_length}; set both to the same"
        )
