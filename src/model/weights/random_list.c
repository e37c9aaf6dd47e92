/* The list of a generated model's tensors, as a safetensors file would have it. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/weights/random.h"
#include "model/weights/weights.h"
#include "tessera/quant.h"

typedef struct listing {
    tsr__params *params;
    tsr_dtype dtype;
    uint64_t elements; /* the number of elements of the tensors so far */
} listing;

static tsr_status add_tensor(void *user, const char *name, int ndim, const int64_t *shape)
{
    listing *l = user;
    const bool is_matrix = tsr__random_kind(name, ndim) == TSR__RANDOM_MATRIX;
    const tsr_quant_format *format = is_matrix ? tsr_quant_format_of(l->dtype) : NULL;
    tsr_shard_param param = {.name = name,
                             .dtype = tsr_dtype_name(is_matrix ? l->dtype : TSR_F32),
                             .ndim = ndim,
                             .offset_bytes = l->elements};
    memcpy(param.shape, shape, (size_t)ndim * sizeof *shape);
    TSR__REQUIRE(
        !format || shape[ndim - 1] % format->block_count == 0,
        "model: tensor %s has %lld columns, which are not whole blocks of %s's %d elements", name,
        (long long)shape[ndim - 1], format->name, format->block_count);
    TSR__TRY(tsr__params_add(l->params, &param));
    l->elements += l->params->items[l->params->count - 1].count;
    return TSR_OK;
}

static tsr_status make_list(tsr__model_files *files, const tsr_model_config *config,
                            tsr_dtype dtype)
{
    files->folder = tsr__strdup("");
    files->weights = tsr__strdup("the generated model");
    files->list = tsr__calloc(1, sizeof *files->list);
    if (!files->folder || !files->weights || !files->list)
        return TSR_ERR_NO_MEMORY;
    files->list->format = TSR_SHARD_SAFETENSORS;
    listing l = {.params = &files->list->params, .dtype = dtype};
    TSR__TRY(tsr__weights_expected(files, config, add_tensor, &l));
    return tsr__params_sort(&files->list->params, &files->names);
}

tsr_status tsr__random_files(const tsr_model_config *config, tsr_dtype dtype, uint64_t seed,
                             tsr__model_files *out)
{
    *out = (tsr__model_files){0};
    TSR__REQUIRE(
        dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16 || tsr_quant_format_of(dtype),
        "model: dtype %s is neither f32, f16, bf16 nor a block format", tsr_dtype_name(dtype));
    TSR__TRY(tsr__random_weights_create(config->width, dtype, seed, &out->random));
    return make_list(out, config, dtype);
}
