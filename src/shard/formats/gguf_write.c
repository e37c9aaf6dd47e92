#include "shard/formats/gguf_write.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/float16.h"
#include "shard/formats/gguf_metadata.h"
#include "shard/params/params.h"

#define MAGIC 0x46554747u /* "GGUF" */
#define VERSION 3
#define HEAD 24 /* bytes of magic, version and counts */

void tsr__gguf_writer_finish(tsr__gguf_writer *w)
{
    tsr__free(w->metadata.data);
    tsr__free(w->tensors.data);
    *w = (tsr__gguf_writer){0};
}

static tsr_status put_u32(tsr__bytes *to, uint32_t value)
{
    uint8_t bytes[4];
    tsr__put_u32(bytes, value);
    return tsr__bytes_append(to, bytes, sizeof bytes);
}

static tsr_status put_u64(tsr__bytes *to, uint64_t value)
{
    uint8_t bytes[8];
    tsr__put_u64(bytes, value);
    return tsr__bytes_append(to, bytes, sizeof bytes);
}

static tsr_status put_text(tsr__bytes *to, const char *text, size_t size)
{
    TSR__TRY(put_u64(to, size));
    return tsr__bytes_append(to, text, size);
}

/* Metadata ------------------------------------------------------------------------------------- */

static tsr_status put_key(tsr__gguf_writer *w, const char *key, uint32_t type)
{
    TSR__TRY(put_text(&w->metadata, key, strlen(key)));
    w->metadata_count++;
    return put_u32(&w->metadata, type);
}

tsr_status tsr__gguf_put_u32(tsr__gguf_writer *w, const char *key, uint32_t value)
{
    TSR__TRY(put_key(w, key, TSR__GGUF_U32));
    return put_u32(&w->metadata, value);
}

tsr_status tsr__gguf_put_f32(tsr__gguf_writer *w, const char *key, float value)
{
    TSR__TRY(put_key(w, key, TSR__GGUF_F32));
    return put_u32(&w->metadata, tsr__bits_of_f32(value));
}

tsr_status tsr__gguf_put_bool(tsr__gguf_writer *w, const char *key, bool value)
{
    const uint8_t byte = value;
    TSR__TRY(put_key(w, key, TSR__GGUF_BOOL));
    return tsr__bytes_append(&w->metadata, &byte, 1);
}

tsr_status tsr__gguf_put_string(tsr__gguf_writer *w, const char *key, const char *text, size_t size)
{
    TSR__TRY(put_key(w, key, TSR__GGUF_STRING));
    return put_text(&w->metadata, text, size);
}

tsr_status tsr__gguf_put_array(tsr__gguf_writer *w, const char *key, uint32_t type, uint64_t count)
{
    TSR__TRY(put_key(w, key, TSR__GGUF_ARRAY));
    TSR__TRY(put_u32(&w->metadata, type));
    return put_u64(&w->metadata, count);
}

tsr_status tsr__gguf_put_element_string(tsr__gguf_writer *w, const char *text, size_t size)
{
    return put_text(&w->metadata, text, size);
}

tsr_status tsr__gguf_put_element_bits(tsr__gguf_writer *w, uint32_t bits)
{
    return put_u32(&w->metadata, bits);
}

tsr_status tsr__gguf_put_element_bool(tsr__gguf_writer *w, bool value)
{
    const uint8_t byte = value;
    return tsr__bytes_append(&w->metadata, &byte, 1);
}

/* Tensors -------------------------------------------------------------------------------------- */

tsr_status tsr__gguf_put_tensor(tsr__gguf_writer *w, const tsr_shard_param *param, uint64_t *offset,
                                uint64_t *size_bytes)
{
    tsr_shard_param resolved = *param;
    uint32_t number = 0;
    TSR__TRY(tsr__param_resolve(&resolved));
    if (!tsr__dtype_gguf_number(resolved.dtype, &number))
        return tsr__fail(TSR_ERR_UNSUPPORTED, "gguf: tensor %s is %s, which GGUF does not have",
                         param->name, param->dtype);
    TSR__TRY(put_text(&w->tensors, param->name, strlen(param->name)));
    TSR__TRY(put_u32(&w->tensors, (uint32_t)param->ndim));
    for (int i = param->ndim - 1; i >= 0; i--)
        TSR__TRY(put_u64(&w->tensors, (uint64_t)param->shape[i]));
    TSR__TRY(put_u32(&w->tensors, number));
    TSR__TRY(put_u64(&w->tensors, w->weights_bytes));
    *offset = w->weights_bytes;
    *size_bytes = resolved.size_bytes;
    w->weights_bytes += tsr__align_up_u64(resolved.size_bytes, TSR__GGUF_ALIGNMENT);
    w->tensor_count++;
    return TSR_OK;
}

tsr_status tsr__gguf_header(const tsr__gguf_writer *w, uint8_t **out, size_t *size)
{
    const size_t used = HEAD + w->metadata.size + w->tensors.size,
                 all = (size_t)tsr__align_up_u64(used, TSR__GGUF_ALIGNMENT);
    TSR__REQUIRE(all <= TSR__MAX_HEADER,
                 "gguf: a header of %zu bytes is longer than the %" PRIu64 " allowed", all,
                 TSR__MAX_HEADER);
    uint8_t *header = tsr__calloc(all, 1), *at = header;
    if (header == NULL)
        return TSR_ERR_NO_MEMORY;
    at = tsr__put_u32(at, MAGIC);
    at = tsr__put_u32(at, VERSION);
    at = tsr__put_u64(at, w->tensor_count);
    at = tsr__put_u64(at, w->metadata_count);
    if (w->metadata.size > 0)
        memcpy(at, w->metadata.data, w->metadata.size);
    if (w->tensors.size > 0)
        memcpy(at + w->metadata.size, w->tensors.data, w->tensors.size);
    *out = header;
    *size = all;
    return TSR_OK;
}
