"""The equality test of two engines: texts on which tokenizers are known to differ."""

from __future__ import annotations

PROBE_TEXTS: tuple[str, ...] = (
    # Whitespace runs and line ends.
    "",
    " ",
    "   ",
    "\n",
    "\r\n\r\n",
    "\t\tx\n \n  y \r z",
    "trailing spaces   ",
    "   leading",
    "a\n\n\n\n\nb",
    " \u00a0\u2003\u3000 wide\u200b zero\ufeff",
    "\x0b\x0c\x85\u2028\u2029",
    # Words, contractions, case.
    "Hello world",
    "It's we'll I'M THEY'RE don't o'clock 'tis",
    "CamelCaseHTTPServer snake_case kebab-case",
    "naïve café coöperate Ångström",
    "ſtraße İstanbul ǅ ﬁ",
    # Digits.
    "1",
    "12 123 1234 12345 1234567890123",
    "3.14159e-10 0x1F 1,000,000 10%",
    "①②③ ½ ² ٣٤٥ 一二三 Ⅷ",
    # Punctuation and code.
    "!!! ??? ... --- ___ ===",
    "def f(x):\n    return {\"a\": [x, *y], 'b': None}  # note\n",
    "#include <stdio.h>\nint main(void) { return a[i]->b && !c; }\n",
    "<div class='x'>&amp;</div><!-- c -->",
    "https://example.com/a?b=c&d=%20#e user@example.com",
    "\\n \\t \\u0041 C:\\dir\\file",
    # Scripts.
    "今日は良い天気ですね。東京都、千代田区！",
    "你好，世界。繁體中文與简体中文",
    "안녕하세요 세계",
    "مرحبا بالعالم، كيف الحال؟",
    "שלום עולם",
    "हिन्दी में कैसे हैं आप",
    "ภาษาไทยไม่มีช่องว่าง",
    "Привет, мир! Ёлка",
    "Ελληνικά γράμματα",
    "ქართული հայերեն",
    "\u202eabc\u202c \u200fx\u200e",
    # Combining characters, composed and decomposed.
    "e\u0301 \u00e9 a\u0308\u0323 \u1e69",
    "각 각",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L",
    # Emoji: joined, flags, skin tones, keycaps.
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 1️⃣ ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "😀😃text😄",
    # Planes beyond the first, private use, noncharacters, replacement.
    "𝕳𝖊𝖑𝖑𝖔 𐍈 𠜎 \U0001f9ff",
    "\ue000 \uf8ff \U000f0000",
    "\ufffd \ufffe \uffff",
    # Control characters.
    "\x00\x01\x02\x7f\x1b[31mred\x1b[0m",
    "null\x00inside",
    # Texts that spell special tokens.
    "<|endoftext|>",
    "text <|endoftext|> text<|endoftext|><|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<s>[INST] hi [/INST]</s><pad><unk>[CLS][SEP][MASK]",
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n<|eot_id|>",
    "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|> <think>x</think>",
    "<|endoftext <|endoftext| > <||endoftext||>",
    "▁metaspace Ġbyte Ċlevel <0x0A>",
    # Long runs.
    "a" * 300,
    " " * 300 + "x",
    "ab" * 200,
    "\n" * 100,
    "é" * 120,
    "0" * 200,
    "." * 150,
    "日" * 100,
    "🙂" * 40,
)
"""Fixed: a text may be added, never taken away."""


def probe_texts(added_tokens: list[str]) -> list[str]:
    """Return the fixed texts, and texts around up to 32 of the tokenizer's own added tokens."""
    some = added_tokens[:16] + added_tokens[16:][-16:]
    return [*PROBE_TEXTS, *(f"a {token} b{token}{token}\n{token}c" for token in some)]
