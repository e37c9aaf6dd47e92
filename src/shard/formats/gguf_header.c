/* Reads headers of GGUF files. A header contains counts, metadata, and the name, dimensions, type
 * and offset of each tensor. The innermost dimension, whose elements are contiguous, comes first.
 * Offsets count from the start of the weights. Source: the format's specification,
 * github.com/ggml-org/ggml, docs/gguf.md. The reader accepts versions 2 and 3. Version 1, which has
 * counts of 32 bits, is no longer in use. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "shard/formats/gguf_metadata.h"
#include "shard/formats/readers.h"
#include "json/text_check.h"

#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT 1073741824

typedef struct gguf_reader {
    tsr__gguf gguf;
    uint64_t alignment;
    bool aligned; /* whether the key general.alignment has been read */
    tsr__params *params;
    tsr__gguf_keys *keys;
    tsr__spans spans;
} gguf_reader;

static tsr_status read_alignment(gguf_reader *reader, uint32_t type)
{
    uint32_t alignment = 0;
    uint64_t start = reader->gguf.at;
    if (reader->aligned)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, start,
                              "general.alignment comes twice");
    if (type != TSR__GGUF_U32)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, start,
                              "general.alignment has type %" PRIu32 ", not %d", type,
                              TSR__GGUF_U32);
    TSR__TRY(tsr__gguf_u32(&reader->gguf, "general.alignment", &alignment));
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > MAX_ALIGNMENT)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, start,
                              "general.alignment is %" PRIu32 ", no power of two up to %d",
                              alignment, MAX_ALIGNMENT);
    reader->alignment = alignment;
    reader->aligned = true;
    return TSR_OK;
}

static tsr_status read_metadata(gguf_reader *reader, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t type = 0;
        TSR__TRY(tsr__gguf_name(&reader->gguf, "a metadata key"));
        bool is_alignment = strcmp(reader->gguf.name, "general.alignment") == 0;
        if (!is_alignment) /* error texts of read_alignment already name the key */
            tsr__subject_set(&reader->gguf.file->subject, "key", reader->gguf.name, i);
        TSR__TRY(tsr__gguf_u32(&reader->gguf, "a value's type", &type));
        TSR__TRY(tsr__gguf_keys_add(reader->keys, &reader->gguf, type));
        TSR__TRY(is_alignment ? read_alignment(reader, type) : tsr__gguf_skip(&reader->gguf, type));
        tsr__subject_clear(&reader->gguf.file->subject);
    }
    return TSR_OK;
}

/* Tensors -------------------------------------------------------------------------------------- */

static tsr_status read_shape(gguf_reader *reader, tsr_shard_param *param)
{
    uint32_t ndim = 0;
    uint64_t start = reader->gguf.at;
    TSR__TRY(tsr__gguf_u32(&reader->gguf, "a tensor's number of dimensions", &ndim));
    if (ndim > TSR_SHARD_MAX_DIMS)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, start,
                              "%" PRIu32 " dimensions are more than %d", ndim, TSR_SHARD_MAX_DIMS);
    param->ndim = (int)ndim;
    for (int i = param->ndim - 1; i >= 0; i--) {
        uint64_t size = 0;
        start = reader->gguf.at;
        TSR__TRY(tsr__gguf_u64(&reader->gguf, "a tensor's dimension", &size));
        if (size > INT64_MAX)
            return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, start,
                                  "a dimension of %" PRIu64, size);
        param->shape[i] = (int64_t)size;
    }
    return TSR_OK;
}

static tsr_status read_tensor(gguf_reader *reader)
{
    tsr_shard_param param = {.name = reader->gguf.name};
    tsr__file_dtype dtype = {0};
    char text[TSR__NAME_SHORT];
    uint32_t type = 0;
    uint64_t offset = 0, start = reader->gguf.at;
    TSR__TRY(tsr__gguf_name(&reader->gguf, "a tensor's name"));
    tsr__subject_set(&reader->gguf.file->subject, "tensor", reader->gguf.name, 0);
    TSR__TRY(read_shape(reader, &param));
    uint64_t type_at = reader->gguf.at;
    TSR__TRY(tsr__gguf_u32(&reader->gguf, "a tensor's type", &type));
    uint64_t offset_at = reader->gguf.at;
    TSR__TRY(tsr__gguf_u64(&reader->gguf, "a tensor's offset", &offset));
    if (!tsr__dtype_by_gguf(type, &dtype))
        return tsr__file_fail(reader->gguf.file, TSR_ERR_UNSUPPORTED, type_at,
                              "tensor type %" PRIu32 " is unknown", type);
    param.dtype = dtype.name;
    /* Each row must consist of complete blocks, so that a row can be used without the others. */
    uint64_t row = param.ndim > 0 ? (uint64_t)param.shape[param.ndim - 1] : 1;
    if (row % dtype.block_count != 0)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, start,
                              "rows of %" PRIu64 " elements are not whole blocks of %" PRIu64, row,
                              dtype.block_count);
    if (offset % reader->alignment != 0)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, offset_at,
                              "offset %" PRIu64 " is no multiple of the alignment of %" PRIu64,
                              offset, reader->alignment);
    tsr_status status = tsr__params_add(reader->params, &param);
    if (status == TSR_ERR_NO_MEMORY)
        return status;
    if (status != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "%s: offset %" PRIu64 ": tensor '%s'",
                                 reader->gguf.file->what, start,
                                 tsr__name_short(reader->gguf.name, text));
    uint64_t size = reader->params->items[reader->params->count - 1].size_bytes;
    if (offset > INT64_MAX - size)
        return tsr__file_fail(reader->gguf.file, TSR_ERR_INVALID, offset_at,
                              "its offset of %" PRIu64 " is beyond 2^63 - 1 bytes", offset);
    tsr__subject_clear(&reader->gguf.file->subject);
    return tsr__spans_add(&reader->spans, reader->params, offset, offset + size, start);
}

/* Sets the tensors' offsets in the file. Called after the header has been read, because only its
 * end determines where the weights start. */
static tsr_status place_tensors(gguf_reader *reader)
{
    uint64_t start = tsr__align_up_u64(reader->gguf.at, reader->alignment);
    char text[TSR__NAME_SHORT];
    uint64_t weights = start <= reader->gguf.file->size ? reader->gguf.file->size - start : 0;
    for (size_t i = 0; i < reader->spans.count; i++) {
        const tsr__span *span = &reader->spans.items[i];
        if (span->end > weights)
            return tsr__file_fail(
                reader->gguf.file, TSR_ERR_INVALID, span->header_at,
                "tensor '%s' ends at byte %" PRIu64 " of the weights, which have %" PRIu64,
                tsr__name_short(reader->params->items[span->param].name, text), span->end, weights);
        /* The file may end before the offset at which its weights would start. An empty tensor then
         * gets the offset of the file's end. */
        reader->params->items[span->param].offset_bytes =
            tsr__min_u64(start + span->start, reader->gguf.file->size);
    }
    return TSR_OK;
}

static tsr_status read_header(gguf_reader *reader)
{
    uint64_t tensors = 0, metadata = 0;
    TSR__TRY(tsr__gguf_head(&reader->gguf, &tensors, &metadata));
    TSR__TRY(read_metadata(reader, metadata));
    for (uint64_t i = 0; i < tensors; i++)
        TSR__TRY(read_tensor(reader));
    TSR__TRY(tsr__check_names(reader->gguf.file->what, reader->params, &reader->spans));
    TSR__TRY(place_tensors(reader));
    return tsr__spans_check(reader->gguf.file, reader->params, &reader->spans, false, 0);
}

tsr_status tsr__read_gguf(tsr__file *file, tsr__params *params, tsr__gguf_keys *keys)
{
    file->what = "gguf";
    gguf_reader *reader = tsr__calloc(1, sizeof *reader);
    if (reader == NULL)
        return TSR_ERR_NO_MEMORY;
    reader->gguf.file = file;
    reader->params = params;
    reader->keys = keys;
    reader->alignment = DEFAULT_ALIGNMENT;
    tsr_status status = read_header(reader);
    tsr__free(reader->spans.items);
    tsr__free(reader);
    return status;
}
