/* Random weights consist of chunks of CHUNK elements. There are POOL chunks of normally distributed
 * numbers, and Philox chooses one of them for each chunk of a tensor, by the seed, the tensor and
 * the number of the chunk. Those of matrices are made in advance. Opening a generated model
 * therefore takes about as long as copying its weights, also in formats whose quantisation would
 * take minutes. Other tensors are small, and their chunks are made when they are read. */
#include "model/weights/random.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "base/variate.h"
#include "tensor/float_conversion.h"
#include "tessera/quant.h"

#define CHUNK 256 /* a multiple of the elements of every format's blocks */
#define POOL 4096

/* The weights of norms are about 1. */
#define NORM_MEAN 1.0F
#define NORM_DEVIATION 0.1F

/* The lowest bit of the last word of Philox's counter says what the output is used for: the numbers
 * of the pool, or the choice of its chunks. */
enum { VALUES = 0, CHOICES = 1 };

/* Making chunks ------------------------------------------------------------------------------ */

static void draw(const tsr__random_weights *w, uint32_t counter[4], uint32_t words[4])
{
    const uint32_t key[2] = {(uint32_t)w->seed, (uint32_t)(w->seed >> 32)};
    tsr__philox4x32(counter, key, words);
}

/* Makes chunks first … first + count − 1 of the numbers for tensors of a kind. */
static void fill(const tsr__random_weights *w, int kind, uint32_t first, uint32_t count, float *out)
{
    const float mean = kind == TSR__RANDOM_NORM ? NORM_MEAN : 0;
    const float deviation =
        kind == TSR__RANDOM_NORM ? NORM_DEVIATION : (float)(1 / sqrt((double)w->width));
    for (uint32_t i = 0; i < count * CHUNK; i += 4) {
        uint32_t words[4];
        draw(w, (uint32_t[4]){first * CHUNK + i, 0, (uint32_t)kind, VALUES}, words);
        for (uint32_t word = 0; word < 4; word++)
            out[i + word] = mean + deviation * tsr__normal_from_word(words[word]);
    }
}

static tsr_status encode(tsr_dtype dtype, const float *values, tsr__random_weights *out)
{
    const tsr_quant_format *format = tsr_quant_format_of(dtype);
    const size_t chunk = format
                             ? (size_t)(CHUNK / format->block_count) * (size_t)format->block_bytes
                             : CHUNK * tsr_dtype_size(dtype);
    out->chunk_bytes = chunk;
    out->chunks = tsr__calloc(POOL, chunk);
    if (!out->chunks)
        return TSR_ERR_NO_MEMORY;
    if (format)
        return tsr_quantize(dtype, values, (int64_t)POOL * CHUNK, out->chunks, POOL * chunk);
    if (dtype == TSR_F32)
        memcpy(out->chunks, values, POOL * chunk);
    else
        tsr__converter(dtype, TSR_F32)(out->chunks, values, (size_t)POOL * CHUNK);
    return TSR_OK;
}

static tsr_status make_chunks(tsr__random_weights *w, tsr_dtype dtype)
{
    float *values = tsr__calloc((size_t)POOL * CHUNK, sizeof *values);
    tsr_status status = values ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (values) {
        fill(w, TSR__RANDOM_MATRIX, 0, POOL, values);
        status = encode(dtype, values, w);
    }
    tsr__free(values);
    return status;
}

tsr_status tsr__random_weights_create(int64_t width, tsr_dtype dtype, uint64_t seed,
                                      tsr__random_weights **out)
{
    tsr__random_weights *w = tsr__calloc(1, sizeof *w);
    if (!w)
        return TSR_ERR_NO_MEMORY;
    w->seed = seed;
    w->width = width;
    const tsr_status status = make_chunks(w, dtype);
    if (status == TSR_OK)
        *out = w;
    else
        tsr__random_weights_destroy(&w);
    return status;
}

void tsr__random_weights_destroy(tsr__random_weights **weights)
{
    if (!*weights)
        return;
    tsr__free((*weights)->chunks);
    tsr__free(*weights);
    *weights = NULL;
}

/* Reading ------------------------------------------------------------------------------------ */

int tsr__random_kind(const char *name, int ndim)
{
    const size_t length = strlen(name);
    if (length >= 4 && strcmp(name + length - 4, "bias") == 0)
        return TSR__RANDOM_BIAS;
    if (strstr(name, "conv1d")) /* a few taps, which no block format has */
        return TSR__RANDOM_NORM;
    return ndim > 1 ? TSR__RANDOM_MATRIX : TSR__RANDOM_NORM;
}

/* Returns which of the POOL chunks is chunk `number` of a tensor. */
static uint32_t chunk_of(const tsr__random_weights *w, const tsr_shard_param *param,
                         uint64_t number)
{
    /* Four consecutive chunks use one result of Philox. A tensor's offset is the number of elements
     * before it, which does not depend on the dtype. */
    const uint64_t block = number / 4, tensor = param->offset_bytes;
    uint32_t words[4];
    draw(w,
         (uint32_t[4]){(uint32_t)block, (uint32_t)tensor, (uint32_t)(tensor >> 32),
                       CHOICES | (uint32_t)(block >> 32) << 1},
         words);
    return words[number % 4] % POOL;
}

void tsr__random_read(const tsr__random_weights *w, const tsr_shard_param *param, uint64_t at,
                      uint64_t size, void *out)
{
    const int kind = tsr__random_kind(param->name, param->ndim);
    float values[CHUNK];
    const uint64_t chunk_bytes = kind == TSR__RANDOM_MATRIX ? w->chunk_bytes : sizeof values;
    uint8_t *to = out;
    while (size > 0) {
        const uint64_t skip = at % chunk_bytes, left = chunk_bytes - skip;
        const uint64_t bytes = size < left ? size : left;
        const uint32_t chunk = chunk_of(w, param, at / chunk_bytes);
        if (kind != TSR__RANDOM_MATRIX)
            fill(w, kind, chunk, 1, values);
        const uint8_t *from =
            kind == TSR__RANDOM_MATRIX ? w->chunks + chunk * chunk_bytes : (const uint8_t *)values;
        memcpy(to, from + skip, (size_t)bytes);
        to += bytes;
        at += bytes;
        size -= bytes;
    }
}
