#!/bin/sh
# serve_openai.sh BUILD: asks `tessera serve` with OpenAI's client, which npm installs into a temporary folder.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! command -v npm >/dev/null || ! npm install --prefix "$folder" --no-audit --no-fund --silent openai@6.49.0 >"$folder/npm.log" 2>&1; then
    echo "1..0 # SKIP there is no npm, or it cannot install OpenAI's client"
    exit 0
fi
node tests/cli/serve_openai.mjs "$build/src/cli/tessera" tests/data/model/stories260K-f16.gguf "$folder"
