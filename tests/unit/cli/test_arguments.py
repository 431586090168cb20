from __future__ import annotations

import pytest

from zephon.cli.arguments import names, numbers
from zephon.errors import ConfigError


def test_lists_keep_their_order_and_lose_repetitions() -> None:
    assert names("threads, inline,threads", option="--backends") == ["threads", "inline"]
    assert numbers("4,1,4", option="--dp-sizes", least=1) == [4, 1]


@pytest.mark.parametrize("text", ["", "1,", ",1", "1,,2"])
def test_empty_values_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--dp-sizes=.*empty value"):
        numbers(text, option="--dp-sizes", least=1)


@pytest.mark.parametrize("text", ["0", "1,x", "-1", "1.5"])
def test_numbers_below_the_least_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="whole number from 1 on"):
        numbers(text, option="--dp-sizes", least=1)
