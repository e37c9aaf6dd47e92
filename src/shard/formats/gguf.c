/* Reads headers of GGUF files. A header contains counts, metadata, and the name, dimensions, type
 * and offset of each tensor. The dimension whose elements are adjacent comes first. Offsets count
 * from the start of the weights. Source: the format's specification, github.com/ggml-org/ggml,
 * docs/gguf.md. The reader accepts versions 2 and 3. Version 1, which has counts of 32 bits, is no
 * longer in use. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "shard/formats/list.h"
#include "json/text.h"

#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT 1073741824
#define MAX_DEPTH 8 /* the maximum depth of arrays inside arrays */

enum { TYPE_UINT32 = 4, TYPE_STRING = 8, TYPE_ARRAY = 9 };

/* The size in bytes of a value of each type. It is 0 for strings and arrays, which have a length.
 */
static const unsigned value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
#define TYPES (sizeof value_bytes / sizeof *value_bytes)

typedef struct gguf_reader {
    tsr__file *file;
    uint64_t at;
    uint64_t alignment;
    bool aligned; /* whether the key general.alignment has been read */
    tsr__params *params;
    tsr__spans spans;
    char name[TSR_SHARD_MAX_NAME + 1];
} gguf_reader;

static tsr_status take(gguf_reader *reader, uint64_t size, const char *part, void *out)
{
    if (reader->at + size > TSR__MAX_HEADER)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, reader->at,
                              "the header is longer than the %" PRIu64 " bytes allowed",
                              TSR__MAX_HEADER);
    TSR__TRY(tsr__file_read(reader->file, reader->at, size, part, out));
    reader->at += size;
    return TSR_OK;
}

static tsr_status take_u32(gguf_reader *reader, const char *part, uint32_t *out)
{
    uint8_t bytes[4];
    TSR__TRY(take(reader, sizeof bytes, part, bytes));
    *out = (uint32_t)tsr__little_endian(bytes, 4);
    return TSR_OK;
}

static tsr_status take_u64(gguf_reader *reader, const char *part, uint64_t *out)
{
    uint8_t bytes[8];
    TSR__TRY(take(reader, sizeof bytes, part, bytes));
    *out = tsr__little_endian(bytes, 8);
    return TSR_OK;
}

/* Skips count × size bytes. It is an error if the file does not contain all of them. */
static tsr_status skip(gguf_reader *reader, uint64_t count, uint64_t size, const char *part)
{
    uint64_t bytes;
    if (!tsr__mul_u64(count, size, &bytes) || reader->at > reader->file->size ||
        bytes > reader->file->size - reader->at)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, reader->at,
                              "%" PRIu64 " × %" PRIu64 " bytes of %s go beyond the file's %" PRIu64,
                              count, size, part, reader->file->size);
    reader->at += bytes;
    return TSR_OK;
}

/* Reads a string into reader->name. A string that does not fit is an error. */
static tsr_status take_name(gguf_reader *reader, const char *part)
{
    uint64_t length = 0, start = reader->at;
    TSR__TRY(take_u64(reader, part, &length));
    if (length > TSR_SHARD_MAX_NAME)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
                              "%s of %" PRIu64 " bytes is longer than the %d allowed", part, length,
                              TSR_SHARD_MAX_NAME);
    TSR__TRY(take(reader, length, part, reader->name));
    reader->name[length] = '\0';
    const char *problem = tsr__name_problem(reader->name, length);
    /* tsr__name_problem rejects control characters, and therefore zero bytes inside the name. */
    if (problem != NULL)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start, "%s %s", part, problem);
    return TSR_OK;
}

/* Metadata ------------------------------------------------------------------------------------- */

static tsr_status skip_value(gguf_reader *reader, uint32_t type, int depth);

static tsr_status skip_array(gguf_reader *reader, int depth)
{
    uint32_t type = 0;
    uint64_t count = 0, start = reader->at;
    if (depth == MAX_DEPTH)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
                              "arrays nested more than %d deep", MAX_DEPTH);
    TSR__TRY(take_u32(reader, "an array's type", &type));
    TSR__TRY(take_u64(reader, "an array's length", &count));
    if (type < TYPES && value_bytes[type] > 0)
        return skip(reader, count, value_bytes[type], "an array");
    /* Each element takes at least 8 bytes, so this loop ends at the latest at the end of the file
     * or at the maximum size of a header. */
    for (uint64_t i = 0; i < count; i++)
        TSR__TRY(skip_value(reader, type, depth));
    return TSR_OK;
}

static tsr_status skip_value(gguf_reader *reader, uint32_t type, int depth)
{
    uint64_t length = 0;
    if (type >= TYPES)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, reader->at,
                              "metadata type %" PRIu32 " is unknown", type);
    if (type == TYPE_ARRAY)
        return skip_array(reader, depth + 1);
    if (type == TYPE_STRING) {
        TSR__TRY(take_u64(reader, "a string's length", &length));
        return skip(reader, length, 1, "a string");
    }
    return skip(reader, 1, value_bytes[type], "a value");
}

static tsr_status read_alignment(gguf_reader *reader, uint32_t type)
{
    uint32_t alignment = 0;
    uint64_t start = reader->at;
    if (reader->aligned)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
                              "general.alignment comes twice");
    if (type != TYPE_UINT32)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
                              "general.alignment has type %" PRIu32 ", not %d", type, TYPE_UINT32);
    TSR__TRY(take_u32(reader, "general.alignment", &alignment));
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > MAX_ALIGNMENT)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
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
        TSR__TRY(take_name(reader, "a metadata key"));
        bool is_alignment = strcmp(reader->name, "general.alignment") == 0;
        if (!is_alignment) /* the error texts of read_alignment already contain the key's name */
            tsr__subject_set(&reader->file->subject, "key", reader->name, i);
        TSR__TRY(take_u32(reader, "a value's type", &type));
        TSR__TRY(is_alignment ? read_alignment(reader, type) : skip_value(reader, type, 0));
        tsr__subject_clear(&reader->file->subject);
    }
    return TSR_OK;
}

/* Tensors -------------------------------------------------------------------------------------- */

static tsr_status read_shape(gguf_reader *reader, tsr_shard_param *param)
{
    uint32_t ndim = 0;
    uint64_t start = reader->at;
    TSR__TRY(take_u32(reader, "a tensor's number of dimensions", &ndim));
    if (ndim > TSR_SHARD_MAX_DIMS)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
                              "%" PRIu32 " dimensions are more than %d", ndim, TSR_SHARD_MAX_DIMS);
    param->ndim = (int)ndim;
    for (int i = param->ndim - 1; i >= 0; i--) {
        uint64_t size = 0;
        start = reader->at;
        TSR__TRY(take_u64(reader, "a tensor's dimension", &size));
        if (size > INT64_MAX)
            return tsr__file_fail(reader->file, TSR_ERR_INVALID, start, "a dimension of %" PRIu64,
                                  size);
        param->shape[i] = (int64_t)size;
    }
    return TSR_OK;
}

static tsr_status read_tensor(gguf_reader *reader)
{
    tsr_shard_param param = {.name = reader->name};
    tsr_shard_dtype dtype = {0};
    char text[TSR__NAME_SHORT];
    uint32_t type = 0;
    uint64_t offset = 0, start = reader->at;
    TSR__TRY(take_name(reader, "a tensor's name"));
    tsr__subject_set(&reader->file->subject, "tensor", reader->name, 0);
    TSR__TRY(read_shape(reader, &param));
    uint64_t type_at = reader->at;
    TSR__TRY(take_u32(reader, "a tensor's type", &type));
    uint64_t offset_at = reader->at;
    TSR__TRY(take_u64(reader, "a tensor's offset", &offset));
    if (!tsr__dtype_by_gguf(type, &dtype))
        return tsr__file_fail(reader->file, TSR_ERR_UNSUPPORTED, type_at,
                              "tensor type %" PRIu32 " is unknown", type);
    param.dtype = dtype.name;
    /* Each row must consist of complete blocks, so that a row can be used without the others. */
    uint64_t row = param.ndim > 0 ? (uint64_t)param.shape[param.ndim - 1] : 1;
    if (row % dtype.block_count != 0)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, start,
                              "rows of %" PRIu64 " elements are not whole blocks of %" PRIu64, row,
                              dtype.block_count);
    if (offset % reader->alignment != 0)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, offset_at,
                              "offset %" PRIu64 " is no multiple of the alignment of %" PRIu64,
                              offset, reader->alignment);
    tsr_status status = tsr__params_add(reader->params, &param);
    if (status == TSR_ERR_NO_MEMORY)
        return status;
    if (status != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "%s: offset %" PRIu64 ": tensor '%s'",
                                 reader->file->what, start, tsr__name_short(reader->name, text));
    uint64_t size = reader->params->items[reader->params->count - 1].size_bytes;
    if (offset > INT64_MAX - size)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, offset_at,
                              "its offset of %" PRIu64 " is beyond 2^63 - 1 bytes", offset);
    tsr__subject_clear(&reader->file->subject);
    return tsr__spans_add(&reader->spans, reader->params, offset, offset + size, start);
}

/* Sets the tensors' offsets in the file. Called after the header has been read, because only its
 * end determines where the weights start. */
static tsr_status place_tensors(gguf_reader *reader)
{
    uint64_t start = tsr__align_up_u64(reader->at, reader->alignment);
    char text[TSR__NAME_SHORT];
    uint64_t weights = start <= reader->file->size ? reader->file->size - start : 0;
    for (size_t i = 0; i < reader->spans.count; i++) {
        const tsr__span *span = &reader->spans.items[i];
        if (span->end > weights)
            return tsr__file_fail(
                reader->file, TSR_ERR_INVALID, span->header_at,
                "tensor '%s' ends at byte %" PRIu64 " of the weights, which have %" PRIu64,
                tsr__name_short(reader->params->items[span->param].name, text), span->end, weights);
        /* The file may end before the offset at which its weights would start. An empty tensor then
         * gets the offset of the file's end. */
        reader->params->items[span->param].offset_bytes =
            tsr__min_u64(start + span->start, reader->file->size);
    }
    return TSR_OK;
}

static tsr_status read_head(gguf_reader *reader, uint64_t *tensors, uint64_t *metadata)
{
    uint8_t magic[4];
    uint32_t version = 0;
    TSR__TRY(take(reader, sizeof magic, "the magic", magic));
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, 0,
                              "the file does not start with \"GGUF\"");
    TSR__TRY(take_u32(reader, "the version", &version));
    if (version != 2 && version != 3)
        return tsr__file_fail(reader->file, TSR_ERR_UNSUPPORTED, 4,
                              (version & 0xffff) == 0 && version != 0
                                  ? "version 0x%08" PRIx32 ": a big-endian file"
                                  : "version %" PRIu32 " is neither 2 nor 3",
                              version);
    TSR__TRY(take_u64(reader, "the number of tensors", tensors));
    TSR__TRY(take_u64(reader, "the number of metadata", metadata));
    if (*tensors > TSR_SHARD_MAX_PARAMS)
        return tsr__file_fail(reader->file, TSR_ERR_INVALID, 8,
                              "%" PRIu64 " tensors are more than the %d allowed", *tensors,
                              TSR_SHARD_MAX_PARAMS);
    return TSR_OK;
}

static tsr_status read_header(gguf_reader *reader)
{
    uint64_t tensors = 0, metadata = 0;
    TSR__TRY(read_head(reader, &tensors, &metadata));
    TSR__TRY(read_metadata(reader, metadata));
    for (uint64_t i = 0; i < tensors; i++)
        TSR__TRY(read_tensor(reader));
    TSR__TRY(tsr__check_names(reader->file->what, reader->params, &reader->spans));
    TSR__TRY(place_tensors(reader));
    return tsr__spans_check(reader->file, reader->params, &reader->spans, false, 0);
}

tsr_status tsr__read_gguf(tsr__file *file, tsr__params *params)
{
    file->what = "gguf";
    gguf_reader *reader = tsr__calloc(1, sizeof *reader);
    if (reader == NULL)
        return TSR_ERR_NO_MEMORY;
    reader->file = file;
    reader->params = params;
    reader->alignment = DEFAULT_ALIGNMENT;
    tsr_status status = read_header(reader);
    tsr__free(reader->spans.items);
    tsr__free(reader);
    return status;
}
