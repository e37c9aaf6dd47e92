"""needed.py BUILD SUITE… [--without SUITE…]: prints the files that these suites' tests need, one per line, for ninja."""

import json
import os
import subprocess
import sys


def introspect(build, what):
    return json.loads(subprocess.check_output(["meson", "introspect", what, build]))


def main(build, suites):
    wanted, _, unwanted = " ".join(suites).partition("--without")
    wanted, unwanted = set(wanted.split()), set(unwanted.split())
    needed = set()
    for test in introspect(build, "--tests"):
        own = {suite.split(":")[-1] for suite in test["suite"]}
        if own & wanted and not own & unwanted:
            needed.update(test["depends"])
    for target in introspect(build, "--targets"):
        if target["id"] in needed:
            print("\n".join(os.path.relpath(name, build) for name in target["filename"]))


main(sys.argv[1], sys.argv[2:])
