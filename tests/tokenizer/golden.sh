#!/bin/sh
# golden.sh BUILD FOLDER: compares vocabularies in FOLDER, which this repository may not contain because of their licences, with golden
# files there: ggml-vocab-NAME.gguf or .gguf.gz with tok_NAME.json (llama.cpp's ids), and NAME.tokenizer.json with hf_NAME.json (ids of
# Hugging Face's tokenizers).
set -u
if [ $# != 2 ]; then
    echo "usage: golden.sh BUILD FOLDER" >&2
    exit 1
fi
build=$(realpath "$1")
golden=$2
. "$(dirname "$0")/../source/tap.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

check() { # TOKENIZER GOLDEN
    case $1 in
    *.gz) gunzip -c "$1" >"$folder/vocab.gguf" && "$build/tests/tokenizer/tokenizer-golden" "$folder/vocab.gguf" "$2" ;;
    *) "$build/tests/tokenizer/tokenizer-golden" "$1" "$2" ;;
    esac
}

found=no
for file in "$golden"/ggml-vocab-*.gguf "$golden"/ggml-vocab-*.gguf.gz "$golden"/*.tokenizer.json; do
    [ -f "$file" ] || continue
    name=${file##*/}
    case $name in
    *.tokenizer.json) ids=hf_${name%.tokenizer.json}.json ;;
    *) ids=${name#ggml-vocab-} ids=tok_${ids%%.gguf*}.json ;;
    esac
    [ -f "$golden/$ids" ] || continue
    found=yes
    point "$name gives the ids of $ids" check "$file" "$golden/$ids"
done
some_found() {
    [ "$found" = yes ]
}
point "there are golden files" some_found
plan
