#!/bin/sh
# serve_page.sh BUILD: drives the page of `tessera serve` in a browser.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
browser=$(command -v chromium || command -v chromium-browser || true)
if [ -z "$browser" ] || ! command -v node >/dev/null; then
    echo '1..0 # SKIP no package of this distribution has chromium, or there is no node'
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
HOME=$folder node tests/cli/serve_page.mjs "$build/src/cli/tessera" tests/data/model/stories260K-f16.gguf "$browser" "${PICTURES:-$folder}"
