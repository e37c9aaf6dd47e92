#!/usr/bin/env python3
"""Makes tests/data/tokenizer/words.json: texts, and how the known expressions cut them into words.

    python3 tests/tools/make_words.py > tests/data/tokenizer/words.json

The cuts are those of the Python module `regex`, an engine that takes the expressions as they are. The
matchers in src/tokenizer/word_matchers.c are hand-written and must agree. The texts are random, from
characters that these expressions distinguish, and from pieces that they treat specially."""
import json
import random
import sys

import regex

CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
LLAMA = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN = LLAMA.replace("{1,3}", "")
QWEN35 = (r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES)
FIRST = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
SECOND = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
A = r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))"
B = r"((?=[\p{L}])([^A-Z]))"
SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
V3 = (r"[!" + '"' + r"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" + "\r\n" + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| "
      r"?[\p{P}\p{S}]+[" + "\r\n" + r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+")
CJK = "[一-龥ࠀ-一가-퟿]+"
KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"

# The letters of DeepSeek-LLM's list, as in word_matchers.c.
SOURCE = open("src/tokenizer/word_matchers.c", encoding="utf-8").read()
TABLE = regex.search(r"cased_letters.*?ranges\[\] = \{(.*?)\};", SOURCE, regex.S).group(1)
PAIRS = regex.findall(r"\{0x([0-9a-f]+), 0x([0-9a-f]+)\}", TABLE)
LETTERS = "[" + "".join("%s-%s" % (chr(int(a, 16)), chr(int(b, 16))) for a, b in PAIRS) + "]"
WIDE = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"

BY_NAME = {
    "gpt-2": [GPT2],
    "llama-bpe": [CONTRACTIONS + LLAMA],
    "qwen2": [CONTRACTIONS + QWEN],
    "qwen35": [CONTRACTIONS + QWEN35],
    "starcoder": [r"\p{N}", GPT2],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-llm": ["[\r\n]", r"\s?" + LETTERS + "+", WIDE, r"\s+$", CJK, r"\p{N}+"],
    "deepseek-v3": [r"\p{N}{1,3}", KANA, V3],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "tekken": [A + "*" + B + "+|" + A + "+" + B + r"*|\p{N}" + SIGNS],
    "gpt-4o": [A + "*" + B + "+" + CONTRACTIONS + "?|" + A + "+" + B + "*" + CONTRACTIONS + r"?|\p{N}{1,3}" + SIGNS],
}
BY_EXPRESSION = {
    "llama-bpe": [ANY_CASE + LLAMA],
    "qwen2": [ANY_CASE + QWEN],
    "qwen35": [ANY_CASE + QWEN35],
    "gpt-2": [GPT2 + r"|\s+"],
    "gpt-4o": [FIRST + "*" + SECOND + "+" + ANY_CASE + "?|" + FIRST + "+" + SECOND + "*" + ANY_CASE + r"?|\p{N}{1,3}" + SIGNS],
    "tekken": [FIRST + "*" + SECOND + "+|" + FIRST + "+" + SECOND + r"*|\p{N}" + SIGNS],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", KANA, V3],
}

SINGLE = list("abzABZ019 \t\n\r'.,!?/-_$+<|`~^(\u00a0\u3000\u2028é\u0301\u0300ǅʰßΩЖ一ばゟ가힣ࠀ²Ⅷ٣😀…。，।؟ſ\u200d\ue000")
PIECES = ["'s", "'LL", "'ſ", "'re", "don't", "Hello", "World", "iPhone", "ABCdef", "一AB", "12345", "  ", "   ", "\n\n", " \n ",
          "\r\n", "=>", "//", "e\u0301", "Ж Ω", "!a", ".com", " x", "'", "\t\t", "１２３", "«»", "--"]


def cut(expressions, text):
    pieces = [text] if text else []
    for expression in expressions:
        compiled, result = regex.compile(expression), []
        for piece in pieces:
            at = 0
            for match in compiled.finditer(piece):
                if match.start() == match.end():
                    continue
                result += [piece[at:match.start()]] if match.start() > at else []
                result.append(match.group(0))
                at = match.end()
            result += [piece[at:]] if at < len(piece) else []
        pieces = result
    ends, at = [], 0
    for piece in pieces:
        at += len(piece.encode())
        ends.append(at)
    return ends


def main():
    random.seed(7)
    texts = ["", " ", "\n", "a", "  a  ", "a\n\n b"]
    texts += ["".join(random.choice(PIECES if random.random() < 0.4 else SINGLE) for _ in range(random.randint(2, 24)))
              for _ in range(60)]
    cases = [{"name": name, "cuts": [cut(e, t) for t in texts]} for name, e in BY_NAME.items()]
    cases += [{"name": name, "expressions": e, "cuts": [cut(e, t) for t in texts]} for name, e in BY_EXPRESSION.items()]
    json.dump({"format": "tessera-golden-1",
               "about": "How expressions cut texts into words: for each text, the offsets in bytes (UTF-8) where the words end. Cases "
                        "without expressions are names of tokenizer.ggml.pre. Made by tests/tools/make_words.py.",
               "source": "Python module regex " + regex.__version__, "texts": texts, "cases": cases},
              sys.stdout, ensure_ascii=True, separators=(",", ":"))
    print()


main()
