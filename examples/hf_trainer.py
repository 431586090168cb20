"""The Hugging Face Trainer: its batches are the stream's, and its checkpoints hold the stream's position.

    torchrun --standalone --nproc-per-node 2 examples/hf_trainer.py --folder out --until 10
    torchrun --standalone --nproc-per-node 1 examples/hf_trainer.py --folder out --until 20

trains 10 steps on 2 processes, then 10 more on one. `--config` is configs/demo.yaml, which needs what `make demo`
leaves. The main process prints the Trainer's logs as lines of JSON.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState, PrinterCallback
from transformers.trainer_utils import get_last_checkpoint
from zephon_torch import WholeState, host_group, masked_labels, topology_from_world

import zephon


class Stream(TrainerCallback, ExportableState):
    """The stream as the Trainer sees it: an iterable of its inputs, and a part of its checkpoints.

    Give it to `callbacks` and return it from `get_train_dataloader`. The state goes into trainer_state.json as text.
    For streams without an end: of passes, the Trainer counts steps that change with the number of processes.
    """

    def __init__(self, config: zephon.Config) -> None:
        if config.length is not None:
            raise zephon.ConfigError("length is set, but the Trainer is given max_steps here; leave length out")
        self._config = config
        self._saved: str | None = None

    def open(self) -> Stream:
        """Make the loader, once all processes have met."""
        self.loader = zephon.Loader(self._config, topology_from_world())
        # Made here, because all processes are here; not all of them write checkpoints.
        self._whole = WholeState(self.loader, group=host_group())
        return self

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in self.loader:
            labels = masked_labels(batch)
            # `labels` are the next tokens already: as shift_labels the model doesn't shift them again.
            yield {
                "input_ids": batch["tokens"],
                "position_ids": batch["position_ids"],
                "labels": labels,
                "shift_labels": labels,
            }

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer has read."""
        self._saved = state.stateful_callbacks.get("Stream", {}).get("attributes", {}).get("saved")
        if self._saved is not None:
            self.loader.load_state_dict(msgspec.msgpack.decode(base64.b64decode(self._saved)))
        elif state.global_step:
            raise zephon.StateError("the checkpoint has no state of the stream; resume from one that was made with it")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if control.should_save:
            self._gather()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if control.should_save:
            self._gather()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Whether this was the best so far, and so is saved, is known afterwards.
        self._gather()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.loader.close()

    def state(self) -> dict[str, Any]:
        """Return what was gathered; only the process that writes asks for it, so nothing is gathered here."""
        return {"args": {}, "attributes": {"saved": self._saved}}

    def _gather(self) -> None:
        state = self._whole.state_dict()
        self._saved = base64.b64encode(msgspec.msgpack.encode(state)).decode()


class StreamTrainer(Trainer):
    """A Trainer that is fed by a Stream among its callbacks."""

    def get_train_dataloader(self) -> Any:
        return next(found for found in self.callback_handler.callbacks if isinstance(found, Stream)).open()


class JsonPrinter(TrainerCallback):
    """Prints the logs of the main process, a line of JSON each."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            print(json.dumps({"step": state.global_step, **logs}), flush=True)


def main() -> None:
    """Be one process: train from the newest checkpoint in --folder, if there is one, up to step --until."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--config", default="configs/demo.yaml")
    parser.add_argument("--until", type=int, required=True, help="stop after so many steps, of all runs together")
    parser.add_argument("--vocabulary", type=int, default=8192)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)

    config = zephon.load_config(options.config)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    arguments = TrainingArguments(
        output_dir=str(options.folder),
        max_steps=options.until,
        # The Trainer's own batch arithmetic, for its logs and its accumulation.
        per_device_train_batch_size=config.micro_batch_size,
        gradient_accumulation_steps=config.global_batch_size // (ranks * config.micro_batch_size),
        # The stream knows where it is: nothing is to be skipped.
        ignore_data_skip=True,
        lr_scheduler_type="constant",
        learning_rate=1e-3,
        logging_steps=1,
        save_steps=options.until,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=options.vocabulary, **sizes))
    trainer = StreamTrainer(model=model, args=arguments, callbacks=[Stream(config), JsonPrinter()])
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.folder)))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
