"""The Hugging Face Trainer: its batches are the stream's, and its checkpoints hold the stream's position.

    torchrun --standalone --nproc-per-node 2 examples/hf_trainer.py --folder out/trainer --until 10
    torchrun --standalone --nproc-per-node 1 examples/hf_trainer.py --folder out/trainer --until 20

trains 10 steps on 2 processes, then 10 more on one. `--config` is configs/demo.yaml, which needs what `make demo`
leaves. The main process prints the Trainer's logs as lines of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint
from zephon_torch.hf_trainer import TrainerStream

import zephon


class StreamTrainer(Trainer):
    """A Trainer that is fed by the TrainerStream among its callbacks."""

    def get_train_dataloader(self) -> Any:
        return next(found for found in self.callback_handler.callbacks if isinstance(found, TrainerStream))


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
    train(options)
    # Before the process group: where DDP's reducer is the last to let go of a gloo group, torch can wait for ever.
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def train(options: argparse.Namespace) -> None:
    """Let the Trainer train and save."""
    config = zephon.load_config(options.config)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    accumulate, rest = divmod(config.global_batch_size, ranks * config.micro_batch_size)
    if rest:
        raise zephon.ConfigError(
            f"global_batch_size={config.global_batch_size} isn't whole micro-batches of all processes; "
            f"make it a multiple of {ranks * config.micro_batch_size}"
        )
    arguments = TrainingArguments(
        output_dir=str(options.folder),
        max_steps=options.until,
        # The Trainer's own batch arithmetic, for its logs and its accumulation.
        per_device_train_batch_size=config.micro_batch_size,
        gradient_accumulation_steps=accumulate,
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
    stream = TrainerStream(config)
    # The stream last: so it knows what the others ask for.
    trainer = StreamTrainer(model=model, args=arguments, callbacks=[JsonPrinter(), stream])
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.folder)))
    stream.close()


if __name__ == "__main__":
    main()
