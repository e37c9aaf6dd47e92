"""tidy.py BUILD [CACHE]: checks the C sources that BUILD/compile_commands.json compiles with clang-tidy.

A source that several programs share is checked once for each set of macros and instruction sets. CACHE is a folder with an empty file for
each check that has passed. The name of the file is a hash of what the check depends on: the source, the files of this project that it
includes, the command, .clang-tidy and the version of clang-tidy. The system's headers are no part of it.
"""

import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.getcwd()
INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
# Flags of outputs. Those from the third one on have a value.
OUTPUTS = ["-c", "-MD", "-MQ", "-MF", "-o"]


@functools.lru_cache(None)
def read(path):
    """The hash of a file, and the names that it includes."""
    with open(path, "rb") as file:
        content = file.read()
    return hashlib.sha256(content).digest(), [name.decode() for name in INCLUDE.findall(content)]


@functools.lru_cache(None)
def is_file(path):
    return os.path.isfile(path)


def includes(source, folders):
    """All files of the project and of the build that the source includes, and the source itself."""
    found, open_files = {source}, [source]
    while open_files:
        path = open_files.pop()
        for name in read(path)[1]:
            for folder in [os.path.dirname(path), *folders]:
                included = os.path.normpath(os.path.join(folder, name))
                if is_file(included):
                    if included not in found:
                        found.add(included)
                        open_files.append(included)
                    break
    return sorted(found)


def checks(build, tracked):
    """The source and the compile command of each check."""
    seen = set()
    with open(os.path.join(build, "compile_commands.json")) as file:
        for entry in json.load(file):
            source = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
            words = shlex.split(entry["command"])
            key = (source, tuple(word for word in words if re.match("-[Dm]", word)))
            if os.path.relpath(source, ROOT) in tracked and key not in seen:
                seen.add(key)
                yield source, words, entry["directory"]


def key_of(source, words, directory, version):
    folders = [os.path.join(directory, word[2:]) for word in words if word.startswith("-I")]
    digest = hashlib.sha256(version + read(".clang-tidy")[0])
    digest.update(" ".join(words).replace(ROOT, ".").encode())
    for path in includes(source, folders):
        digest.update(os.path.relpath(path, ROOT).encode() + read(path)[0])
    return digest.hexdigest()


def check(one, version, cache):
    source, words, directory = one
    passed = cache and os.path.join(cache, key_of(source, words, directory, version))
    if passed and os.path.exists(passed):
        return True
    # All flags but those that name outputs, and the source itself.
    flags = [word for word, before in zip(words[1:], words) if word not in OUTPUTS and before not in OUTPUTS[2:]]
    command = ["clang-tidy", "--quiet", source, "--", *flags[:-1]]
    result = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        print(result.stdout + result.stderr, flush=True)
    elif passed:
        open(passed, "w").close()
    return result.returncode == 0


def main(build, cache=None):
    tracked = set(subprocess.check_output(["git", "ls-files", "*.c"], text=True).split("\n")) - {""}
    version = subprocess.check_output(["clang-tidy", "--version"])
    wanted = list(checks(build, tracked))
    if 2 * len({source for source, _, _ in wanted}) < len(tracked):
        sys.exit(f"most of the sources are not in {build}/compile_commands.json")
    if cache:
        os.makedirs(cache, exist_ok=True)
    # Starts with the largest sources, so that all processors finish at about the same time.
    wanted.sort(key=lambda one: -os.path.getsize(one[0]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = list(pool.map(lambda one: check(one, version, cache), wanted))
    sys.exit(not all(passed))


main(*sys.argv[1:])
