"""Megatron-Bridge recipes on Zephon's data: `data.backend=zephon` on the command line, and `pretrain`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zephon_megatron.launch_yaml import BACKEND, StreamSettings, read_section, set_override

from zephon import ConfigError

SECTION = "data"
# Settings of a Bridge data section that are ZephonDatasetConfig's own, not the stream's.
FORM = ("packed", "reset_position_ids", "eod_mask_loss")


class StreamCallback:
    """Tells ZephonDatasetConfig where the trainer is, before Bridge builds its data; a callback of Bridge's `pretrain`.

    Needs a release with the event on_data_init_start (0.6).
    """

    def on_data_init_start(self, context: Any) -> None:
        """Called by Bridge once a checkpoint, if any, is loaded."""
        dataset = context.state.cfg.dataset
        if hasattr(type(dataset), "trainer"):
            dataset.trainer = context.state


def pretrain(config: Any, forward_step_func: Callable[..., Any], callbacks: Any = None) -> None:
    """Call Megatron-Bridge's `pretrain` with a StreamCallback among the callbacks (a list, a CallbackManager, or None).

    With a dataset that isn't Zephon's the callback does nothing.
    """
    from megatron.bridge.training.pretrain import pretrain as bridge_pretrain

    bridge_pretrain(config, forward_step_func, callbacks=with_stream_callback(callbacks))


def with_stream_callback(callbacks: Any) -> Any:
    """Return Bridge callbacks with a StreamCallback among them; a CallbackManager is added to."""
    if callbacks is None:
        return [StreamCallback()]
    if isinstance(callbacks, list):
        return [StreamCallback(), *callbacks]
    callbacks.add(StreamCallback())
    return callbacks


def use_zephon(config: Any, overrides: Sequence[str] = ()) -> tuple[Any, list[str]]:
    """Return a recipe's ConfigContainer, on Zephon's data where overrides say `data.backend=zephon`, and the others.

    The section `data` has the settings of a Megatron YAML's (see docs/nemo.md), and packed, reset_position_ids and
    eod_mask_loss. Then `config.dataset` is replaced by a ZephonDatasetConfig. With another backend, or none, `config`
    stays as it is. The overrides that aren't the section's are returned for Bridge's own processing. Raises
    ConfigError where the section makes no sense.
    """
    raw: dict[str, Any] = {}
    others = []
    for word in overrides:
        name = word.partition("=")[0]
        if name == SECTION or name.startswith(f"{SECTION}."):
            set_override(raw, word)
        else:
            others.append(word)
    section = raw.get(SECTION)
    if section is None:
        return config, others
    if not isinstance(section, dict):
        raise ConfigError(f"data={section!r} is no section; write data.backend=zephon data.config=…")
    backend = section.pop("backend", None)
    if backend != BACKEND:
        if section:
            raise ConfigError(
                f"data.{next(iter(section))} is set, but data.backend is {backend!r}; set data.backend=zephon, or "
                "override dataset.… for the recipe's own data"
            )
        return config, others
    config.dataset = dataset_config(section, seq_length=config.model.seq_length)
    return config, others


def dataset_config(section: dict[str, Any], *, seq_length: int) -> Any:
    """Return the ZephonDatasetConfig that a data section, without its backend, describes."""
    from zephon_nemo.bridge import ZephonDatasetConfig

    form = {name: section.pop(name) for name in FORM if name in section}
    for name, value in form.items():
        if not isinstance(value, bool):
            raise ConfigError(f"data.{name}={value!r} must be true or false")
    read = read_section(section, place="data")
    made: dict[str, Any] = {**form, "begins_at": read.begins_at}
    made |= {"dataloader_save": read.save, "dataloader_load": read.load, "seq_length": seq_length}
    for prefix, stream in (("", read.train), ("valid_", read.valid), ("test_", read.test)):
        settings = stream or StreamSettings()
        made |= {f"{prefix}config": settings.config, f"{prefix}overrides": list(settings.overrides)}
    return ZephonDatasetConfig(**made)
