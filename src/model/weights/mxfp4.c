#include "model/weights/mxfp4.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tensor/check.h"

enum { BYTES = 16, ELEMENTS = 32 }; /* of a block, without its scale */

/* Blocks ------------------------------------------------------------------------------------- */

static uint8_t element(const uint8_t *bytes, int i)
{
    return (uint8_t)(bytes[i / 2] >> 4 * (i % 2) & 15);
}

void tsr__mxfp4_from_pair(uint8_t *out, const uint8_t *scales, uint64_t count)
{
    const uint8_t *from = out + count;
    for (uint64_t b = 0; b < count; b++) {
        uint8_t bytes[BYTES]; /* the block's place overlaps bytes of this and earlier blocks only */
        memcpy(bytes, from + b * BYTES, BYTES);
        uint8_t *to = out + b * (BYTES + 1);
        *to++ = scales[b];
        for (int j = 0; j < BYTES; j++)
            to[j] = (uint8_t)(element(bytes, j) | element(bytes, j + BYTES) << 4);
    }
}

void tsr__mxfp4_to_pair(const uint8_t *blocks, uint64_t count, uint8_t *bytes, uint8_t *scales)
{
    for (uint64_t b = 0; b < count; b++) {
        const uint8_t *from = blocks + b * (BYTES + 1);
        uint8_t *to = bytes + b * BYTES;
        scales[b] = *from++;
        for (int i = 0; i < ELEMENTS; i += 2) {
            const uint8_t low = from[i % BYTES], high = from[i % BYTES + 1];
            const int half = i / BYTES * 4;
            to[i / 2] = (uint8_t)((low >> half & 15) | (high >> half & 15) << 4);
        }
    }
}

/* Pairs -------------------------------------------------------------------------------------- */

static tsr_status check_pair(const tsr_shard_param *blocks, const tsr_shard_param *scales)
{
    bool fits = strcmp(blocks->dtype, "u8") == 0 && strcmp(scales->dtype, "u8") == 0 &&
                blocks->ndim == scales->ndim + 1 && blocks->shape[scales->ndim] == BYTES;
    for (int d = 0; fits && d < scales->ndim; d++)
        fits = blocks->shape[d] == scales->shape[d];
    /* Empty tensors may have any other dimensions. */
    TSR__REQUIRE(fits && scales->ndim >= 1 &&
                     scales->shape[scales->ndim - 1] <= INT64_MAX / ELEMENTS,
                 "model: tensors %s (%s %s) and %s (%s %s) are not the blocks and scales of MXFP4",
                 blocks->name, blocks->dtype, TSR__SHAPE(blocks->ndim, blocks->shape), scales->name,
                 scales->dtype, TSR__SHAPE(scales->ndim, scales->shape));
    return TSR_OK;
}

static tsr_status add_pair(tsr__model_files *files, size_t blocks, size_t scales, const char *name)
{
    tsr__params *params = &files->list->params;
    const tsr_shard_param *of_scales = &params->items[scales];
    void *joined = files->joined;
    tsr_shard_param matrix = {.name = name,
                              .dtype = "mxfp4",
                              .file = params->items[blocks].file,
                              .ndim = of_scales->ndim};
    for (int d = 0; d < matrix.ndim; d++)
        matrix.shape[d] = of_scales->shape[d] * (d + 1 == matrix.ndim ? ELEMENTS : 1);
    TSR__TRY(tsr__grow(&joined, &files->joined_capacity, files->joined_count + 1,
                       sizeof *files->joined));
    files->joined = joined;
    TSR__TRY(tsr__params_add(params, &matrix));
    files->joined[files->joined_count++] = (tsr__joined){.blocks = blocks, .scales = scales};
    return TSR_OK;
}

tsr_status tsr__mxfp4_join(tsr__model_files *files)
{
    static const char ending[] = "_blocks";
    const size_t length = sizeof ending - 1, count = files->list->params.count;
    files->first_joined = count;
    for (size_t i = 0; i < count; i++) {
        char name[TSR_SHARD_MAX_NAME + 1];
        const tsr_shard_param *blocks = &files->list->params.items[i];
        const size_t size = strlen(blocks->name);
        if (size <= length || strcmp(blocks->name + size - length, ending) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s_scales", (int)(size - length), blocks->name);
        const tsr__params *all = &files->list->params;
        const tsr_shard_param *scales = tsr__params_find(all, files->names, count, name);
        name[size - length] = '\0';
        if (!scales || tsr__params_find(all, files->names, count, name))
            continue;
        TSR__TRY(check_pair(blocks, scales));
        TSR__TRY(add_pair(files, i, (size_t)(scales - all->items), name));
    }
    if (files->joined_count == 0)
        return TSR_OK;
    tsr__free(files->names);
    files->names = NULL;
    return tsr__params_sort(&files->list->params, &files->names);
}

const tsr__joined *tsr__mxfp4_pair(const tsr__model_files *files, const tsr_shard_param *param)
{
    const size_t index =
        files->joined_count > 0 ? (size_t)(param - files->list->params.items) : SIZE_MAX;
    return index >= files->first_joined && index - files->first_joined < files->joined_count
               ? &files->joined[index - files->first_joined]
               : NULL;
}
