#!/bin/sh
# Benchmark output: a complete run measures everything; its JSON passes a schema validator, and its report page passes an XML parser and a browser. The page of tessera serve in a browser, and its API asked by a client of npm.
. "$(dirname "$0")/lane.sh"
# Ubuntu provides the browser in another form than a Debian package.
if command -v dpkg-query >/dev/null && apt-cache show chromium >/dev/null 2>&1; then
    install_missing chromium nodejs
fi
install_missing python3-jsonschema libxml2-utils fonts-dejavu-core
build_with gcc && compile_kernels_once || exit 1
run_suites build/gcc page || exit 1
run_tap tests/cli/page.sh "$root/build/gcc"
run_tap tests/cli/serve_page.sh "$root/build/gcc"
run_tap tests/cli/serve_openai.sh "$root/build/gcc"
