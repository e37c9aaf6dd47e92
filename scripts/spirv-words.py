"""spirv-words.py IN.spv OUT.inc: writes a SPIR-V module as an array of words that C includes, in the form of glslc -mfmt=c."""

import struct
import sys

MAGIC = 0x07230203


def main(module, out):
    with open(module, "rb") as file:
        data = file.read()
    if len(data) % 4:
        sys.exit(f"{module}: {len(data)} bytes are not a whole number of 32-bit words")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    if not words or words[0] != MAGIC:
        sys.exit(f"{module}: not SPIR-V: its first word is not {MAGIC:#010x}")
    lines = [",".join(f"{word:#010x}" for word in words[i : i + 8]) for i in range(0, len(words), 8)]
    with open(out, "w", encoding="ascii") as file:
        file.write("{" + ",\n".join(lines) + "}\n")


main(*sys.argv[1:])
