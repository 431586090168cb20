"""The `chat` stage: one document for each sample's conversation, by a template, with a loss mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import msgspec
import numpy as np

from zephon.config import Struct
from zephon.errors import ConfigError
from zephon.formats.json_value import json_value
from zephon.formats.sample import Sample
from zephon.stages.documents import Documents, Draft, write_documents
from zephon.stages.edges import edge_token, need_joins, need_tokenizer
from zephon.stages.fields import BadSampleError, half_pair, read_field
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.stages.template import ChatTemplate, read_template
from zephon.tokenizer import LoadedTokenizer

ASSISTANT = "assistant"
DECODER: msgspec.json.Decoder[object] = msgspec.json.Decoder()
Part = tuple[str, bool]


class ChatStage(Struct, frozen=True, kw_only=True):
    """One document a sample: its messages, written by a template. No messages give no document.

    With mask: assistant, the text is cut where learned text begins and ends and the parts are encoded
    apart, as they are when the model is asked: so each token is learned or not, with no doubt. Learned is
    what stands in the template's generation blocks or, if it has none, all that a message of the
    assistant adds behind its generation prompt, without white space behind an end-of-turn token.

    field      member, field or column: a list of messages, as such or as JSON; or an object with `messages`
    template   a Jinja2 file, a tokenizer_config.json, or the text itself; null: ChatML
    mask       assistant: learn the assistant's turns | all: learn everything
    role       name of a message's role
    content    name of a message's content
    roles      what roles are called in the data: {human: user, gpt: assistant}
    extra      further fields of the sample, given to the template under their names (tools)
    variables  further constants, given to the template
    eos        put tokenizer.eos after each document, to be predicted
    """

    field: str = "messages"
    template: str | None = None
    mask: Literal["assistant", "all"] = "assistant"
    role: str = "role"
    content: str = "content"
    roles: dict[str, str] = msgspec.field(default_factory=dict)
    extra: tuple[str, ...] = ()
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    eos: bool = False

    def fields(self) -> tuple[str, ...] | None:
        return (self.field, *self.extra)

    def metadata(self) -> tuple[str, ...]:
        return ()

    def plan(self) -> dict[str, Any]:
        text = read_template(self.template, place="stage.template")
        template = blake2b(text.encode(), digest_size=32).hexdigest()
        return {"kind": "chat", **msgspec.to_builtins(self), "template": template}

    def needs(self) -> tuple[str, ...]:
        return ("path", "eos") if self.eos else ("path",)

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        return self._stage(need_tokenizer(tokenizer, place=place), place=place)

    def writer(self, tokenizer: LoadedTokenizer, *, place: str) -> Callable[[Sample], list[Part]]:
        """Return the function that writes a sample's conversation as texts, each with whether it is learned."""
        return self._stage(tokenizer, place=place).parts

    def _stage(self, tokenizer: LoadedTokenizer, *, place: str) -> _Chat:
        if self.mask == "assistant":
            need_joins(tokenizer, place=place, remedy=f"{place}.mask: all")
        text = read_template(self.template, place=f"{place}.template")
        template = ChatTemplate(text, place=f"{place}.template")
        constants = dict(self.variables)
        for name, token in (("bos_token", tokenizer.bos), ("eos_token", tokenizer.eos)):
            if token is not None:
                constants.setdefault(name, token)
            elif name in template.names and name not in constants:
                setting = name.removesuffix("_token")
                raise ConfigError(f"{place}.template uses {name}, but tokenizer.{setting} isn't set; set it")
        after = (edge_token(tokenizer, "eos", place=place),) if self.eos else ()
        return _Chat(self, tokenizer, template=template, constants=constants, after=after, place=place)


class _Chat:
    def __init__(
        self,
        config: ChatStage,
        tokenizer: LoadedTokenizer,
        *,
        template: ChatTemplate,
        constants: Mapping[str, Any],
        after: tuple[int, ...],
        place: str,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._template = template
        self._constants = constants
        self._after = after
        self._place = place

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        texts: list[str] = []
        pieces: list[int] = []
        flags: list[bool] = []
        starts = [0]
        owners: list[int] = []
        bad: dict[int, str] = {}
        for number, sample in enumerate(samples):
            try:
                parts = self.parts(sample)
            except BadSampleError as error:
                bad[number] = str(error)
                continue
            if not parts:
                continue
            texts += [text for text, _ in parts]
            pieces += [-1] * len(parts) + list(self._after)
            flags += [learned for _, learned in parts] + [True] * len(self._after)
            starts.append(len(pieces))
            owners.append(number)
        draft = Draft(
            texts=texts,
            pieces=np.array(pieces, dtype=np.int64),
            starts=np.array(starts, dtype=np.int64),
            owners=np.array(owners, dtype=np.int64),
            flags=np.array(flags, dtype=np.uint8) if self._config.mask == "assistant" else None,
        )
        return write_documents(draft, self._tokenizer, num_samples=len(samples), bad=bad)

    def parts(self, sample: Sample) -> list[Part]:
        config = self._config
        value = read_field(sample, config.field, place=f"{self._place}.field")
        messages = read_messages(value, config)
        if not messages:
            return []
        extra = {name: read_field(sample, name, place=f"{self._place}.extra") for name in config.extra}
        variables = {**self._constants, **extra}
        if config.mask == "all":
            parts = [(_write(self._template, messages, variables), True)]
        elif self._template.marks:
            parts = self._template.render({**variables, "messages": messages, "add_generation_prompt": False})
        else:
            parts = assistant_parts(self._template, messages, variables)
        for text, _ in parts:
            if half_pair(text) is not None:
                raise BadSampleError(f"{config.field!r} has half a surrogate pair, which is no character; correct it")
        return parts


def read_messages(value: Any, config: ChatStage) -> list[dict[str, Any]]:
    """Return a field's messages, with `role` and `content` under these names; raises BadSampleError."""
    name = config.field
    value = read_json(value, name)
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if not isinstance(value, list):
        raise BadSampleError(f"{name!r} is of type {type(value).__name__}, not a list of messages")
    messages = []
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            raise BadSampleError(f"message {number} of {name!r} is of type {type(message).__name__}, not an object")
        role = message.get(config.role)
        if not isinstance(role, str):
            raise BadSampleError(
                f"message {number} of {name!r} has no {config.role!r} that is a string (has: "
                f"{', '.join(map(repr, message))}); set the stage's role and content"
            )
        read = {key: item for key, item in message.items() if key not in (config.role, config.content)}
        read["role"] = config.roles.get(role, role)
        if config.content in message:
            read["content"] = message[config.content]
        messages.append(read)
    return messages


def read_json(value: Any, name: str) -> Any:
    """Return what a field's bytes or text say as JSON, and any other value as it is; raises BadSampleError."""
    if not isinstance(value, bytes | str):
        return value
    try:
        return json_value(value, DECODER)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadSampleError(f"{name!r} isn't JSON: {error}") from None


def assistant_parts(template: ChatTemplate, messages: list[dict[str, Any]], variables: Mapping[str, Any]) -> list[Part]:
    """Return the text in parts, in order, each with whether the assistant wrote it.

    A turn begins behind what the messages before it and the generation prompt write; how it ends is seen
    where it is the last. Raises BadSampleError where the whole text can't be cut so.
    """
    whole = _write(template, messages, variables)
    parts: list[Part] = []
    position = 0
    for number, message in enumerate(messages):
        if message["role"] != ASSISTANT:
            continue
        prompt = _write(template, messages[:number], variables, prompt=True)
        last = _write(template, messages[: number + 1], variables)
        start = len(prompt)
        stop = -1
        if whole.startswith(prompt) and last.startswith(prompt) and start >= position:
            stop = _end_of_turn(whole, last, start, message.get("content"))
        if stop < 0:
            raise BadSampleError(
                f"the chat template writes message {number} otherwise where more messages follow it, so what to learn "
                "can't be found; mark it in the template with {% generation %} … {% endgeneration %}"
            )
        parts += [(whole[position:start], False), (whole[start:stop], True)]
        position = stop
    parts.append((whole[position:], False))
    return [part for part in parts if part[0]]


def _end_of_turn(whole: str, last: str, start: int, content: Any) -> int:
    # Returns where in `whole` the turn from `start` on ends, having seen it as the `last`; -1: nowhere.
    words = content.strip() if isinstance(content, str) else ""
    found = last.find(words, start)
    if found < 0:
        return -1
    end = last[found + len(words) :].rstrip()
    if not end:
        # Without an end-of-turn token, white space is what ends the turn, and is learned.
        return len(last) if whole.startswith(last) else -1
    at = whole.find(words + end, start)
    if at >= 0:
        return at + len(words) + len(end)
    # A template may write less of a turn that others follow (without its thoughts): then its end alone is sought.
    end = end.strip()
    at = -1 if end in words else whole.find(end, start)
    return at + len(end) if at >= 0 else -1


def _write(
    template: ChatTemplate, messages: list[dict[str, Any]], variables: Mapping[str, Any], *, prompt: bool = False
) -> str:
    parts = template.render({**variables, "messages": messages, "add_generation_prompt": prompt})
    return "".join(text for text, _ in parts)
