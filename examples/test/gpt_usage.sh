#!/bin/sh
# gpt_usage.sh GPT: errors in a text, a configuration or a command line are reported, with the values. Needs no device.
set -u
gpt=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# refuses WORDS ARGUMENT...: the exit status is 2 and stderr contains WORDS.
refuses() {
    words=$1
    shift
    said=$("$gpt" "$@" 2>&1 >/dev/null)
    status=$?
    case "$status:$said" in
    2:*"$words"*) ;;
    *)
        echo "gpt $*: expected \"$words\" and status 2, got status $status: $said"
        failures=$((failures + 1))
        ;;
    esac
}

text=$folder/text
refuses "$text: No such file" --text "$text"
refuses "$folder: " --text "$folder"
: >"$text"
refuses "$text: the file is empty" --text "$text"
printf 'abcdefghij%.0s' $(seq 64) >"$text"
refuses "of 640 characters the last tenth, 64, is held out; a block of 64 needs at least 65 there" --text "$text"
refuses "$text has 574 windows of 2; a batch needs 600" --text "$text" --block 2 --batch 600
printf 'abc\377def' >"$text"
refuses "$text: byte 3, 0xff, is not UTF-8" --text "$text"
printf 'ab\355\240\200cd' >"$text"
refuses "$text: byte 2, 0xed, is not UTF-8" --text "$text"
refuses "the prompt has the character U+20AC, which the text does not have" --prompt 'five €'
refuses "the prompt is empty" --prompt ''

refuses "a width of 128 does not divide over 3 heads" --heads 3
refuses "4 heads do not divide over 3 key/value heads" --style llama --kv-heads 3
refuses "the style gpt2 has as many key/value heads as heads, 4, not 2" --kv-heads 2
refuses "rotary positions need an even number of features per head, not 3" --style llama --width 12
refuses "--style takes gpt2 or llama, not bert" --style bert
refuses "--layers takes a number from 1 to 1000, not 0" --layers 0
refuses "--dropout takes a number from 0 to below 1" --dropout 1
refuses "--warmup 30 is not less than --decay 20" --steps 20 --warmup 30
refuses "--offsets needs --config" --offsets x
refuses "--load and --init exclude each other" --load a --init b
refuses "unexpected argument x" x
refuses "--grid takes DATAxTENSOR ranks" --grid 2y2

config=$folder/config.json
refuses "$config: " --config "$config"
echo '{"model_type": "bert"}' >"$config"
refuses "$config: \"model_type\" is neither gpt2 nor llama" --config "$config"
echo '{"model_type": "gpt2", "n_layer": -1}' >"$config"
refuses "$config: \"n_layer\" is not a number from 1 to 1048576" --config "$config"
echo '{"model_type": "gpt2", "vocab_size": 50257}' >"$config"
refuses "$config describes a vocabulary of 50257, but" --config "$config"
echo '{"model_type": "llama"}' >"$config"
refuses "--style gpt2, but $config describes a model of style llama" --config "$config" --style gpt2
echo '{"model_type": ' >"$config"
refuses "$config:" --config "$config"
echo '{"config": {"batch": 2, "steps": 1}, "offsets": [[5, 6]]}' >"$config"
refuses "$config has 1 batches of 2 windows; the training has 9 steps of 2" --config "$config" --offsets "$config" --steps 9
echo '{"config": {"batch": 2, "steps": 1}, "offsets": [[5, 1003790]]}' >"$config"
refuses "a window starts at 1003790, but the last one that fits starts at 1003789" --config "$config" --offsets "$config"
echo '{"config": {}, "offsets": [[5, 6], [7]]}' >"$config"
refuses '"offsets" is no list of equally long lists of numbers' --config "$config" --offsets "$config"

"$gpt" --help | grep -q '^usage: gpt' || failures=$((failures + 1))
[ "$failures" = 0 ]
