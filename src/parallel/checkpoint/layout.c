/* The header of a file, and the positions of its tensors. Source: the specification of the
 * safetensors format, github.com/huggingface/safetensors. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "parallel/checkpoint/checkpoint.h"
#include "shard/formats/header_file.h"
#include "json/text_check.h"

#define ALIGN 8 /* alignment in bytes of the first tensor in the file */

/* The names that the format gives to dtypes, indexed by tsr_dtype. */
static const char *const dtype_names[] = {"?",   "F32", "F16", "BF16", "I32",
                                          "U32", "I64", "U8",  "F64"};

static tsr_status append_format(tsr__bytes *to, const char *format, ...) TSR__PRINTF(2, 3);
static tsr_status append_format(tsr__bytes *to, const char *format, ...)
{
    char line[128];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return tsr__bytes_append(to, line, (size_t)size);
}

/* Appends the escape sequence of a character that JSON does not allow in a string. */
static tsr_status append_escaped(tsr__bytes *to, char c)
{
    static const char known[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = strchr(known, c);
    if (!found)
        return append_format(to, "\\u%04x", (unsigned)c);
    TSR__TRY(tsr__bytes_append(to, "\\", 1));
    return tsr__bytes_append(to, letters + (found - known), 1);
}

/* Appends a JSON string. The caller has checked that `string` is UTF-8. */
static tsr_status append_string(tsr__bytes *to, const char *string)
{
    TSR__TRY(tsr__bytes_append(to, "\"", 1));
    for (const char *next = string; *next;) {
        size_t plain = 0;
        while ((unsigned char)next[plain] >= 0x20 && next[plain] != '"' && next[plain] != '\\')
            plain++;
        TSR__TRY(tsr__bytes_append(to, next, plain));
        next += plain;
        if (*next)
            TSR__TRY(append_escaped(to, *next++));
    }
    return tsr__bytes_append(to, "\"", 1);
}

static tsr_status check_pair(const char *who, const char *key, const char *value)
{
    const char *problem = tsr__name_problem(key, strlen(key));
    TSR__REQUIRE(!problem, "%s: a key of metadata %s", who, problem);
    TSR__REQUIRE(value, "%s: the metadata '%s' has no text", who, key);
    problem = tsr__text_problem(value, strlen(value));
    TSR__REQUIRE(!problem, "%s: the text of metadata '%s' %s", who, key, problem);
    return TSR_OK;
}

/* Appends room for the checksums of the header and of `count` tensors, filled with zeros. */
static tsr_status append_checksums(tsr__bytes *to, int count)
{
    TSR__TRY(append_format(to, ",\"" TSR__CHECKSUM_KEY "\":\""));
    for (int i = 0; i < count + 1; i++)
        TSR__TRY(tsr__bytes_append(to, "00000000", 8));
    return tsr__bytes_append(to, "\"", 1);
}

static tsr_status append_metadata(const char *who, tsr__bytes *to, const char *const *metadata)
{
    static const char *const none[] = {NULL};
    bool format = false;
    metadata = metadata ? metadata : none;
    TSR__TRY(append_format(to, "{\"__metadata__\":{"));
    for (int i = 0; metadata[i]; i += 2) {
        TSR__TRY(check_pair(who, metadata[i], metadata[i + 1]));
        for (int j = 0; j < i; j += 2)
            TSR__REQUIRE(strcmp(metadata[i], metadata[j]) != 0, "%s: the metadata '%s' comes twice",
                         who, metadata[i]);
        TSR__REQUIRE(strcmp(metadata[i], TSR__CHECKSUM_KEY) != 0,
                     "%s: the metadata '%s' is written by the library", who, metadata[i]);
        format = format || strcmp(metadata[i], "format") == 0;
        TSR__TRY(append_string(to, metadata[i]));
        TSR__TRY(tsr__bytes_append(to, ":", 1));
        TSR__TRY(append_string(to, metadata[i + 1]));
        if (metadata[i + 2] || !format)
            TSR__TRY(tsr__bytes_append(to, ",", 1));
    }
    return format ? TSR_OK : append_format(to, "\"format\":\"pt\"");
}

static tsr_status append_entry(tsr__bytes *to, const tsr_checkpoint_entry *entry, uint64_t start,
                               uint64_t end)
{
    TSR__TRY(tsr__bytes_append(to, ",", 1));
    TSR__TRY(append_string(to, entry->name));
    TSR__TRY(append_format(to, ":{\"dtype\":\"%s\",\"shape\":[", dtype_names[entry->dtype]));
    for (int d = 0; d < entry->ndim; d++)
        TSR__TRY(append_format(to, "%s%" PRId64, d > 0 ? "," : "", entry->shape[d]));
    return append_format(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", start, end);
}

/* Appends the entries whose elements have `width` bytes. The caller starts with the largest
 * width. */
static tsr_status append_width(const char *who, tsr__bytes *to, uint64_t width, int count,
                               const tsr_checkpoint_entry *entries, uint64_t *end, int *written,
                               tsr__checkpoint_layout *layout)
{
    for (int i = 0; i < count; i++) {
        if (tsr__checkpoint_width(entries[i].dtype) != width)
            continue;
        const uint64_t start = *end;
        if (!tsr__add_u64(start, tsr__checkpoint_elements(&entries[i]) * width, end) ||
            *end > INT64_MAX - TSR__MAX_HEADER - 16)
            return tsr__fail(TSR_ERR_OVERFLOW, "%s: all entries together overflow", who);
        layout->at_bytes[i] = start;
        layout->order[(*written)++] = i;
        TSR__TRY(append_entry(to, &entries[i], start, *end));
    }
    return TSR_OK;
}

static tsr_status append_header(const char *who, int count, const tsr_checkpoint_entry *entries,
                                const char *const *metadata, bool checksums, tsr__bytes *to,
                                tsr__checkpoint_layout *layout)
{
    uint64_t end = 0;
    int written = 0;
    uint8_t length[8];
    layout->at_bytes = tsr__calloc((size_t)count, sizeof *layout->at_bytes);
    layout->order = layout->at_bytes ? tsr__calloc((size_t)count, sizeof *layout->order) : NULL;
    if (!layout->order)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr__bytes_append(to, "01234567", sizeof length));
    TSR__TRY(append_metadata(who, to, metadata));
    if (checksums)
        TSR__TRY(append_checksums(to, count));
    TSR__TRY(tsr__bytes_append(to, "}", 1));
    for (uint64_t width = 8; width > 0; width /= 2)
        TSR__TRY(append_width(who, to, width, count, entries, &end, &written, layout));
    TSR__TRY(tsr__bytes_append(to, "}", 1));
    while (to->size % ALIGN != 0)
        TSR__TRY(tsr__bytes_append(to, " ", 1));
    TSR__REQUIRE(to->size - sizeof length <= TSR__MAX_HEADER,
                 "%s: a header of %zu bytes is more than the %" PRIu64 " allowed", who,
                 to->size - sizeof length, TSR__MAX_HEADER);
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)(to->size - sizeof length) >> (8 * i));
    memcpy(to->data, length, sizeof length);
    for (int i = 0; i < count; i++)
        layout->at_bytes[i] += to->size;
    layout->header_bytes = to->size;
    layout->size_bytes = to->size + end;
    return TSR_OK;
}

tsr_status tsr__checkpoint_lay_out(const char *who, int count, const tsr_checkpoint_entry *entries,
                                   const char *const *metadata, bool checksums,
                                   tsr__checkpoint_layout *out)
{
    tsr__bytes header = {0};
    tsr__checkpoint_layout layout = {0};
    tsr_status status = append_header(who, count, entries, metadata, checksums, &header, &layout);
    layout.header = (char *)header.data;
    if (status != TSR_OK) {
        tsr__checkpoint_layout_finish(&layout);
        return status;
    }
    *out = layout;
    return TSR_OK;
}

void tsr__checkpoint_layout_finish(tsr__checkpoint_layout *layout)
{
    tsr__free(layout->header);
    tsr__free(layout->at_bytes);
    tsr__free(layout->order);
    *layout = (tsr__checkpoint_layout){0};
}
