#!/bin/sh
# layers.sh ROOT: #include lines respect the modules' order: each folder includes only the folders that this script lists for it.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

# allowed FOLDER PATTERN…: every #include "…" below the folder starts with one of the patterns.
allowed() {
    folder=$1
    shift
    pattern=$(printf '|%s' "$@")
    ! find "$folder" -name '*.[ch]' -exec grep -nHE '^ *# *include *"' {} + |
        grep -vE "\"(${pattern#|})"
}

only_below() { # FOLDER WHAT: no file of the library, the tool or the examples outside FOLDER includes WHAT
    ! find include src bench examples -name '*.[ch]' -not -path "$1/*" -exec grep -nHE "# *include *[<\"]$2" {} +
}

point "include/tessera includes itself only" allowed include 'tessera/'
point "src/platform includes platform" allowed src/platform 'platform/'
point "src/base includes base" allowed src/base 'base/' 'tessera/base\.h' 'tsr_config\.h' \
    'shaders/(include/normal_table|params/choose)\.h'
point "src/json includes base, json" allowed src/json 'base/' 'json/'
point "src/quant includes base, quant" allowed src/quant 'base/' 'quant/' 'tessera/(base|layout|quant)\.h' \
    'shaders/include/quant_code_books\.h'
point "src/tensor includes base, tensor" allowed src/tensor 'base/' 'tensor/' 'tessera/(base|layout|quant)\.h'
point "src/rng includes base, rng" allowed src/rng 'base/' 'rng/' 'tessera/(base|rng)\.h'
point "src/seed includes base, json, rng, seed" allowed src/seed 'base/' 'json/' 'rng/' 'seed/' 'tessera/(base|rng|seed)\.h'
point "src/sampler includes base, rng, seed, sampler" allowed src/sampler 'base/' 'rng/' 'seed/' 'sampler/' \
    'tessera/(base|rng|seed|sampler)\.h'
point "src/loader includes base, rng, seed, sampler, loader" allowed src/loader 'base/' 'rng/' 'seed/' 'sampler/' 'loader/' \
    'tessera/(base|rng|seed|sampler|loader)\.h'
point "src/training includes base" allowed src/training 'base/' 'tessera/(base|training)\.h'
point "src/shard includes platform, base, json, shard" allowed src/shard 'base/' 'platform/' 'json/' 'shard/' 'tessera/(base|layout|quant|shard)\.h'
point "src/tokenizer includes base, json, shard/formats, tokenizer" allowed src/tokenizer 'base/' 'json/' 'shard/formats/' \
    'tokenizer/' 'tessera/(base|chat|tokenizer)\.h'
point "src/grammar includes base, json, tokenizer, grammar" allowed src/grammar 'base/' 'json/' 'tokenizer/' 'grammar/' \
    'tessera/(base|grammar|tokenizer)\.h'
point "src/gpu includes platform, base, quant, tensor, gpu" allowed src/gpu 'base/' 'platform/' 'quant/' 'tensor/' 'gpu/' 'shaders/' 'tessera/' \
    'tsr_config\.h'
point "src/comm includes base, comm" allowed src/comm 'base/' 'comm/' 'tessera/(base|comm|layout)\.h' 'tsr_config\.h'
point "src/parallel includes platform, base, json, tensor, shard, parallel, gpu/internal.h" allowed src/parallel \
    'base/' 'platform/' 'json/' 'tensor/' 'comm/request_methods\.h' 'parallel/' 'shard/formats/(file_kind|header_file|readers)\.h' \
    'gpu/internal\.h' 'tessera/'
point "src/model includes platform, base, json, shard, tokenizer, grammar, tensor, model, gpu/internal.h, parallel/internal.h" allowed src/model 'base/' 'platform/' \
    'json/' 'shard/' 'tokenizer/' 'grammar/' 'tensor/' 'model/' 'gpu/internal\.h' 'parallel/internal\.h' 'tessera/'
point "src/planner includes base, json, planner, and schedules of comm and pipelines" allowed src/planner 'base/' 'json/' 'planner/' \
    'comm/api/comm_steps\.h' 'parallel/pipeline/schedule\.h' 'tessera/'
point "src/cli includes public headers and the tool's seam" allowed src/cli 'cli/' 'bench/' 'tessera/' 'tool_seam\.h' 'tsr_config\.h' 'page\.html\.inc' 'common/curve\.h'
if [ -d bench ]; then
    point "bench includes public headers, the tool's seam and its helpers" allowed bench 'bench/' 'cli/lib/' 'tessera/' 'tool_seam\.h' 'tsr_config\.h'
fi
if [ -d examples ]; then
    point "examples include public headers" allowed examples 'tessera/' 'common/' '[a-z_]+\.h"'
fi
# Checks the order inside a module: each part may include only the listed parts of its own module.
parts() { # MODULE PART OTHER-PART…
    module=$1
    part=$2
    shift
    pattern=$(printf '|%s' "$@")
    ! find "src/$module/$part" -name '*.[ch]' -exec grep -nHE "^ *# *include *\"$module/" {} + |
        grep -vE "\"$module/(${pattern#|})[/.]"
}
# gpu/internal.h and parallel/internal.h declare functions of several folders for the modules above.
point "gpu/device includes device" parts gpu device
point "gpu/memory includes device, memory" parts gpu memory internal device
point "gpu/spirv includes device" parts gpu spirv device
point "gpu/pipeline includes device, spirv" parts gpu pipeline device spirv/spirv
point "gpu/stream includes device, memory, pipeline, stream" parts gpu stream internal device memory pipeline
point "gpu/self_test includes device, host, pipeline" parts gpu self_test device host pipeline
point "gpu/kernel includes spirv, pipeline, stream, kernel" parts gpu kernel spirv/spirv pipeline stream
point "gpu/quant includes device, memory, pipeline, stream, quant" parts gpu quant internal device memory pipeline stream
point "gpu/ops includes of products only the narrowing of rows, for the delta rule" parts gpu ops internal device memory pipeline stream host \
    quant cpu_drivers self_test matmul/narrowed matmul/self_test
point "gpu/matmul includes no operator" parts gpu matmul internal device memory pipeline stream quant self_test cpu_drivers
point "gpu/attention includes products, rotary embedding and what operators share" parts gpu attention device memory pipeline stream \
    cpu_drivers matmul ops/common ops/rope
point "gpu/experts includes products and what operators share" parts gpu experts internal device memory pipeline stream quant self_test \
    cpu_drivers experts matmul
point "gpu/checks includes no single operator" parts gpu checks internal device pipeline stream quant self_test matmul/self_test matmul/narrowed kv_cache \
    ops/common ops/optimizer/step_params
point "comm/algorithms includes itself and collective_call.h" parts comm algorithms collective_call
point "comm/reduce includes itself only" parts comm reduce
point "comm/ucx includes itself only" parts comm ucx
point "comm/bootstrap includes itself only" parts comm bootstrap
point "comm/shm includes algorithms, reduce, shm" parts comm shm algorithms reduce collective_call
point "comm/recovery includes bootstrap, recovery" parts comm recovery bootstrap
point "comm/failure includes failure" parts comm failure comm_state message_tags
point "comm/progress includes failure, progress, reduce" parts comm progress failure reduce comm_state message_tags
point "parallel/group includes group" parts parallel group
point "parallel/layers includes group, layers" parts parallel layers internal group
point "parallel/checkpoint includes itself only" parts parallel checkpoint
point "parallel/pipeline includes group, pipeline" parts parallel pipeline group
point "parallel/fsdp includes checkpoint, group, layers, fsdp" parts parallel fsdp internal checkpoint group layers
point "Vulkan's headers appear below src/gpu only" only_below src/gpu vulkan/
point "UCX's headers appear below src/comm/ucx only" only_below src/comm/ucx 'uc[pst]/'
plan
