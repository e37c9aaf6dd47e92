#!/bin/sh
# gpt_usage.sh GPT DATA: errors in a text, a file or a command line are reported, with the values, before a device is opened. DATA has the
# recorded runs.
set -u
gpt=$1
data=$2
# Nothing in this test may need a driver.
export VK_DRIVER_FILES=/proc/nonexistent VK_ICD_FILENAMES=/proc/nonexistent
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# refuses WORDS ARGUMENT...: the command line is wrong. The exit status is 2 and stderr contains WORDS.
refuses() {
    ends 2 "$@"
}
# fails WORDS ARGUMENT...: a file is wrong. The exit status is 1 and stderr contains WORDS.
fails() {
    ends 1 "$@"
}
ends() { # STATUS WORDS ARGUMENT...
    wanted=$1
    words=$2
    shift 2
    said=$("$gpt" "$@" 2>&1 >/dev/null)
    status=$?
    case "$status:$said" in
    "$wanted":*"$words"*) ;;
    *)
        echo "gpt $*: expected \"$words\" and status $wanted, got status $status: $said"
        failures=$((failures + 1))
        ;;
    esac
}

text=$folder/text
fails "$text: No such file" --text "$text"
fails "$folder: " --text "$folder"
: >"$text"
fails "$text: the file is empty" --text "$text"
printf 'abcdefghij%.0s' $(seq 64) >"$text"
fails "of 640 characters the last tenth, 64, is held out; a block of 64 needs at least 65 there" --text "$text"
fails "$text has 574 windows of 2; a step needs 600" --text "$text" --block 2 --batch 600
fails "$text has 574 windows of 2; a step needs 576" --text "$text" --block 2 --batch 96 --accumulate 6
printf 'abc\377def' >"$text"
fails "$text: byte 3, 0xff, is not UTF-8" --text "$text"
printf 'ab\355\240\200cd' >"$text"
fails "$text: byte 2, 0xed, is not UTF-8" --text "$text"
fails "the prompt has the character U+20AC, which the text does not have" --prompt 'five €'
fails "the prompt is empty" --prompt ''

refuses "a width of 128 does not divide over 3 heads" --heads 3
refuses "4 heads do not divide over 3 key/value heads" --style llama --kv-heads 3
refuses "the style gpt2 has as many key/value heads as heads, 4, not 2" --kv-heads 2
refuses "rotary positions need an even number of features per head, not 3" --style llama --width 12
refuses "--style takes gpt2 or llama, not bert" --style bert
refuses "--bias is for the style gpt2, not for llama" --style llama --bias
refuses "experts need the style llama" --style gpt2 --experts 8
refuses "a token cannot use 5 of 4 experts" --experts 4 --experts-used 5
refuses "--experts-used, --experts-over, --balance and --bias-rate need a model with experts" --experts-over data
refuses "--experts-over takes data or tensor, not stages" --experts 4 --experts-over stages
refuses "--layers takes a number from 1 to 1000, not 0" --layers 0
refuses "--accumulate takes a number from 1 to 4096, not 0" --accumulate 0
refuses "--dropout takes a number from 0 to below 1" --dropout 1
refuses "--warmup 30 is not less than --decay 20" --steps 20 --warmup 30
refuses "--offsets needs --config" --offsets x
refuses "--load and --init exclude each other" --load a --init b
refuses "unexpected argument x" x

model=$data/../model/stories260K-hf # without a tokenizer
refuses "--model excludes --config, --init, --style, --layers" --model "$model" --layers 2
fails "$folder/none: No such file" --model "$folder/none"
printf 'GGUF123' >"$folder/m.gguf"
fails "$folder/m.gguf is a GGUF file, but --model takes a Hugging Face folder: convert it first" --model "$folder/m.gguf"
fails "/proc/nonexistent: No such file" --text "$0" --save /proc/nonexistent
refuses "--block 1024 is above the context of $model, 512" --model "$model" --block 1024
fails "$model has no tokenizer.json, tokenizer.model or" --model "$model"
gguf=$data/../model/stories260K-f32.gguf
fails "--save copies tokenizer.json or tokenizer.model, and there is none at $gguf" --tokenizer "$gguf" --save "$folder/model.safetensors"
fails "the prompt is empty" --tokenizer "$gguf" --prompt ''
refuses "--separator needs --tokenizer or --model" --separator '##'
refuses "--separator is empty" --tokenizer "$gguf" --separator ''
# A document has the token that begins a text, its own tokens, and the token that ends a text. Empty documents have none.
printf '####a###b##a##' >"$text"
fails "of 11 tokens the last tenth, 2, is held out" --text "$text" --tokenizer "$gguf" --separator '##'
fails "of 0 tokens the last tenth, 0, is held out" --text "$text" --tokenizer "$gguf" --separator '####a###b##a##'
# GPT-2's tokenizer names no token that ends a text, but it has only one that does. Llama 3's has two.
mini=$data/../tokenizer/mini
fails "of 7 tokens the last tenth, 1, is held out" --text "$text" --tokenizer "$mini-gpt2.tokenizer.json" --separator '##'
fails "does not say which token ends a text" --text "$text" --tokenizer "$mini-llama3.tokenizer.json" --separator '##'
fails "$text does not have the separator '#####a##'" --text "$text" --tokenizer "$gguf" --separator '#####a##'
cp "$model/config.json" "$folder"
fails "$folder has neither model.safetensors nor" --model "$folder"
fails "config.json describes a vocabulary of 512, but" --config "$folder/config.json"
sed 's/"vocab_size": 512/"vocab_size": 511/' "$model/config.json" >"$folder/config.json"
cp "$model/model.safetensors" "$folder"
fails "$folder has a vocabulary of 511, but $gguf has 512 tokens" --model "$folder" --tokenizer "$gguf"
sed 's/"llama"/"gpt2"/; s/"hidden_act"/"n_embd": 64, "n_head": 8, "n_layer": 5, "n_positions": 512, "hidden_act"/' "$model/config.json" \
    >"$folder/config.json"
fails "$folder/model.safetensors has no tensor transformer.wte.weight" --model "$folder" --tokenizer "$gguf"
rm "$folder/config.json" "$folder/model.safetensors"
refuses "--pipeline takes a number from 1 to 64, not 0" --pipeline 0
refuses "--pipeline 5 has more stages than the model has blocks, 4" --pipeline 5
refuses "--blocks takes even, rates or numbers, as 3,1, not 3,x" --pipeline 2 --blocks 3,x
refuses "--blocks takes even, rates or numbers, as 3,1, not 4,0" --pipeline 2 --blocks 4,0
refuses "--blocks has 2 numbers; there are 1 stages" --blocks 3,1
refuses "--blocks has 5 blocks together; the model has 4" --pipeline 2 --blocks 3,2
refuses "--tensor-rates takes up to 64 numbers above 0 and up to 1e9, as 3,1, not 3,0" --grid 1x2 --tensor-rates 3,0
refuses "--tensor-rates takes up to 64 numbers above 0 and up to 1e9, as 3,1, not 3;1" --grid 1x2 --tensor-rates '3;1'
refuses "--tensor-rates takes up to 64 numbers above 0 and up to 1e9, as 3,1, not 1,2e9" --grid 1x2 --tensor-rates 1,2e9
refuses "as 3,1, not 1$(printf ',1%.0s' $(seq 64))" --grid 1x2 --tensor-rates "1$(printf ',1%.0s' $(seq 64))"
refuses "--tensor-rates has 1 number; the groups of --grid 1x2 have 2 ranks" --grid 1x2 --tensor-rates 3
refuses "--tensor-rates needs --grid" --tensor-rates 3,1
refuses "--context-parallel takes a number from 1 to 4096, not 0" --context-parallel 0
refuses "--context-rates takes up to 64 numbers above 0 and up to 1e9, as 3,1, not 3,0" --context-parallel 2 --context-rates 3,0
refuses "--context-rates has 2 numbers; --context-parallel is 1" --context-rates 3,1
refuses "context rank 1 has none of the 16 tokens of --block" --context-parallel 2 --context-rates 100,1 --block 16
refuses "--elastic is for data-parallel ranks, not for --context-parallel" --elastic --context-parallel 2
refuses "a grid of 1x2 with --context-parallel 2 and --pipeline 1 has 4 ranks, not --ranks 2" --ranks 2 --grid 1x2 --context-parallel 2
refuses "--wire takes f32, f16, bf16 or q8_0, not q4_0" --wire q4_0
refuses "--grid takes DATAxTENSOR ranks" --grid 2y2
refuses "--elastic is for data-parallel ranks, but --grid 2x2 has 2 tensor-parallel ones" --elastic --grid 2x2
refuses "--elastic is for data-parallel ranks, but --pipeline has 2 stages" --elastic --pipeline 2
refuses "--grid 2x1 has 2 ranks, not --ranks 4" --elastic --ranks 4 --grid 2x1
refuses "--grid 2x2 has 4 ranks, not --ranks 2" --ranks 2 --grid 2x2
refuses "a grid of 1x2 in each of 2 stages has 4 ranks, not --ranks 2" --ranks 2 --pipeline 2 --grid 1x2

config=$folder/config.json
fails "$config: " --config "$config"
# configure TYPE SIZES: writes config.json of a model of this type, with its sizes.
configure() {
    case $1 in
    gpt2) sizes='"n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 64, "vocab_size": 50257' ;;
    *) sizes='"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 64, "vocab_size": 65' ;;
    esac
    echo "{\"model_type\": \"$1\", $sizes${2-}}" >"$config"
}
configure bert
fails "architecture 'bert' is not supported" --config "$config"
configure gpt2
sed -i 's/"n_layer": 2/"n_layer": -2/' "$config"
fails "number of layers is -2; 1 to 1024 is possible" --config "$config"
echo '{"model_type": "gpt2"}' >"$config"
fails "config.json: there is no number of layers" --config "$config"
configure gpt2
fails "$config describes a vocabulary of 50257, but" --config "$config"
configure gpt2 ', "activation_function": "mish"'
fails "activation 'mish' is not supported" --config "$config"
configure qwen2 ', "use_sliding_window": true, "sliding_window": 4, "max_window_layers": 1'
refuses "a model with layers of several kinds has the sizes of its --config only" --config "$config" --heads 8
configure llama
refuses "--style gpt2, but $config describes a model of style llama" --config "$config" --style gpt2
echo '{"model_type": ' >"$config"
fails "$config:" --config "$config"
echo '{"config": {"batch": 2, "steps": 1}, "offsets": [[5, 6]]}' >"$config"
fails "$config has 1 batches of 2 windows; the training has 9 steps of 2" --config "$config" --offsets "$config" --steps 9
echo '{"config": {"batch": 2, "steps": 1}, "offsets": [[5, 1003790]]}' >"$config"
fails "a window starts at 1003790, but the last one that fits starts at 1003789" --config "$config" --offsets "$config"
echo '{"config": {}, "offsets": [[5, 6], [7]]}' >"$config"
fails '"offsets" is no list of equally long lists of numbers' --config "$config" --offsets "$config"

# Weights and checkpoints of other models are refused.
llama=$data/llama_init.safetensors
sizes="--layers 3 --heads 8 --kv-heads 4 --width 64 --inner 176"
fails "$llama has no tensor transformer.wte.weight" --init "$llama"
# shellcheck disable=SC2086 # options
{
    fails "$llama has no tensor model.layers.3.input_layernorm.weight" --init "$llama" --style llama $sizes --layers 4
    fails "self_attn.k_proj.weight is [32,64]; the sizes of the model need [16,64]" --init "$llama" --style llama $sizes --kv-heads 2
    fails "mlp.gate_proj.weight is [176,64]; the sizes of the model need [170,64]" --init "$llama" --style llama $sizes --inner 170
    fails "this is no checkpoint of gpt" --load "$llama" --style llama $sizes
}
fails "transformer.wpe.weight is [64,128]; the sizes of the model need [32,128]" --init "$data/gpt2_init.safetensors.index.json" --block 32
fails "$folder/none: No such file" --init "$folder/none"
fails "cannot open $folder/none: No such file" --load "$folder/none"
# The checkpoint has saved the options of its training. Those of the model must not be contradicted.
# checkpoint MODEL OPTIONS: writes the header of a checkpoint.
checkpoint() {
    header=$(printf '{"__metadata__":{"gpt.model":"%s","gpt.characters":"65:0","gpt.options":"%s"}}' "$1" "$(echo "$2" | sed 's/"/\\"/g')")
    while [ $((${#header} % 8)) != 0 ]; do header="$header "; done
    # shellcheck disable=SC2059 # the bytes are in the format
    printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))\\0\\0\\0\\0\\0\\0" >"$folder/run"
    printf %s "$header" >>"$folder/run"
}
checkpoint 'gpt2, 3 blocks' '{"style":"llama","heads":"2","dtype":"f32","steps":"3"}'
refuses "--heads 4, but the model of $folder/run has --heads 2" --load "$folder/run" --heads 4
refuses "--style gpt2, but the model of $folder/run has --style llama" --load "$folder/run" --style gpt2
refuses "--dtype f16, but the model of $folder/run has --dtype f32" --load "$folder/run" --dtype f16
refuses "--bias, but the model of $folder/run has no --bias" --load "$folder/run" --bias
# Options that the checkpoint lacks have their defaults. The description says what differs.
fails "$folder/run has another model than the options describe: gpt2, 3 blocks, not llama, 4 blocks, 2 heads" --load "$folder/run" --heads 2
refuses "--warmup 9 is not less than --decay 3" --load "$folder/run" --warmup 9
fails "$folder/run has another model" --load "$folder/run" --warmup 9 --steps 40
fails "$folder/run has another model" --load "$folder/run" --elastic --grid 2x1
TESSERA_RESTART=3 refuses "--heads 8, but the model of $folder/run has --heads 2" --checkpoint "$folder/run" --elastic --heads 8
checkpoint 'gpt2, 4 blocks' "{\"text\":\"$folder/gone\"}"
fails "$folder/run was saved with --text $folder/gone: No such file or directory; say where it is with --text" --load "$folder/run"
fails "$folder/none: No such file" --load "$folder/run" --text "$folder/none"
checkpoint 'gpt2, 4 blocks' "{\"model\":\"$folder/gone\"}"
fails "tokenizer" --load "$folder/run" --model "$model"
for options in '{"heads":2}' '{"layer":"2"}' '{"heads":"many"}' '[]' '{'; do
    checkpoint 'gpt2, 4 blocks' "$options"
    fails "$folder/run: its options are damaged: $options" --load "$folder/run"
done
printf '%b' '\101\0\0\0\0\0\0\0{"__metadata__":{"gpt.model":"gpt2", "gpt.characters":"65:0000"}}' >"$folder/run"
fails 'this is no checkpoint of gpt' --load "$folder/run"
fails 'gpt.options' --load "$folder/run"
echo 'no model' >"$folder/model"
fails "$folder/model: " --init "$folder/model"
fails "this is no checkpoint of gpt" --load "$folder/model"
for option in save checkpoint curve log; do
    fails "$folder/none/file: its folder cannot be written: No such file" --$option "$folder/none/file"
done

"$gpt" --help | grep -q '^usage: gpt' || failures=$((failures + 1))
[ "$failures" = 0 ]
