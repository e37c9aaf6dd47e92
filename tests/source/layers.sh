#!/bin/sh
# layers.sh ROOT: #include lines respect the modules' order: each folder names what it may include, nothing else.
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

only_below() { # FOLDER WHAT: in the library, the tool and the examples
    ! find include src bench examples -name '*.[ch]' -not -path "$1/*" -exec grep -nHE "# *include *[<\"]$2" {} +
}

point "include/tessera includes itself only" allowed include 'tessera/'
point "src/base includes base" allowed src/base 'base/' 'tessera/base\.h' 'tsr_config\.h' \
    'shaders/include/normal_table\.h'
point "src/json includes base, json" allowed src/json 'base/' 'json/'
point "src/tensor includes base, tensor" allowed src/tensor 'base/' 'tensor/' 'tessera/(base|layout)\.h'
point "src/rng includes base, rng" allowed src/rng 'base/' 'rng/' 'tessera/(base|rng)\.h'
point "src/seed includes base, json, rng, seed" allowed src/seed 'base/' 'json/' 'rng/' 'seed/' 'tessera/(base|rng|seed)\.h'
point "src/sampler includes base, rng, seed, sampler" allowed src/sampler 'base/' 'rng/' 'seed/' 'sampler/' \
    'tessera/(base|rng|seed|sampler)\.h'
point "src/loader includes base, rng, seed, sampler, loader" allowed src/loader 'base/' 'rng/' 'seed/' 'sampler/' 'loader/' \
    'tessera/(base|rng|seed|sampler|loader)\.h'
point "src/shard includes base, json, shard" allowed src/shard 'base/' 'json/' 'shard/' 'tessera/(base|shard)\.h'
point "src/gpu includes base, tensor, gpu" allowed src/gpu 'base/' 'tensor/' 'gpu/' 'shaders/' 'tessera/' \
    'tsr_config\.h'
point "src/comm includes base, comm" allowed src/comm 'base/' 'comm/' 'tessera/(base|comm|layout)\.h' 'tsr_config\.h'
point "src/parallel includes base, json, tensor, shard, parallel, and gpu's headers without Vulkan" allowed src/parallel \
    'base/' 'json/' 'tensor/' 'parallel/' 'shard/formats/(file|list)\.h' \
    'gpu/(stream/host_access|stream/require|ops/(optimizer/step_params|common/vocabulary))\.h' 'tessera/'
point "src/cli includes public headers" allowed src/cli 'cli/' 'bench/' 'tessera/' 'tsr_config\.h'
if [ -d bench ]; then
    point "bench includes public headers and the tool's helpers" allowed bench 'bench/' 'cli/lib/' 'tessera/' 'tsr_config\.h'
fi
if [ -d examples ]; then
    point "examples include public headers" allowed examples 'tessera/' 'common/' '[a-z_]+\.h"'
fi
point "Vulkan's headers appear below src/gpu only" only_below src/gpu vulkan/
point "UCX's headers appear below src/comm/ucx only" only_below src/comm/ucx 'uc[pst]/'
plan
