#include "parallel/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "tensor/check.h"
#include "tensor/overlap.h"
#include "json/text_check.h"

tsr_status tsr_checkpoint_get_entry(const tsr_parameter *parameter, tsr_checkpoint_entry *out)
{
    TSR__REQUIRE(parameter && out, "checkpoint_entry: %s is NULL", parameter ? "out" : "parameter");
    TSR__TAKE(tsr_parameter, parameter);
    TSR__REQUIRE(parameter->tensor, "checkpoint_entry: '%s' has no memory", parameter->name);
    tsr_checkpoint_entry entry = {
        .struct_size = sizeof entry,
        .name = parameter->name,
        .dtype = parameter->dtype,
        .ndim = parameter->ndim,
        .shard_dim = parameter->shard_dim,
        .offset = parameter->offset,
        .length = parameter->length,
        .count = (uint64_t)tsr_layout_count(tsr_tensor_layout(parameter->tensor)),
        .tensor = parameter->tensor,
    };
    memcpy(entry.shape, parameter->global_shape, sizeof entry.shape);
    TSR__GIVE(tsr_checkpoint_entry, &entry, out);
    return TSR_OK;
}

tsr_status tsr__checkpoint_take(int count, const tsr_checkpoint_entry **entries, void **taken)
{
    *taken = NULL;
    if (count <= 0 || count > TSR_SHARD_MAX_PARAMS || !*entries)
        return TSR_OK;
    TSR__TRY(tsr__struct_take_array("tsr_checkpoint_entry", sizeof **entries, (uint64_t)count,
                                    *entries, taken));
    *entries = *taken;
    return TSR_OK;
}

/* The block of an entry ---------------------------------------------------------------------- */

uint64_t tsr__checkpoint_elements(const tsr_checkpoint_entry *entry)
{
    uint64_t elements = 1;
    for (int d = 0; d < entry->ndim; d++)
        elements *= (uint64_t)entry->shape[d];
    return elements;
}

void tsr__checkpoint_along(const tsr_checkpoint_entry *entry, uint64_t *size, uint64_t *offset,
                           uint64_t *length)
{
    const bool divided = entry->shard_dim >= 0;
    *size = entry->ndim == 0 ? 1 : (uint64_t)entry->shape[divided ? entry->shard_dim : 0];
    *offset = divided ? (uint64_t)entry->offset : 0;
    *length = divided ? (uint64_t)entry->length : *size;
}

tsr__checkpoint_rows tsr__checkpoint_rows_of(const tsr_checkpoint_entry *entry)
{
    const int dim = entry->shard_dim < 0 ? 0 : entry->shard_dim;
    uint64_t size, offset, length, outer = 1, inner = 1;
    tsr__checkpoint_along(entry, &size, &offset, &length);
    for (int d = 0; d < entry->ndim; d++) {
        if (d < dim)
            outer *= (uint64_t)entry->shape[d];
        else if (d > dim)
            inner *= (uint64_t)entry->shape[d];
    }
    return (tsr__checkpoint_rows){outer, length * inner, size * inner, offset * inner};
}

/* Checking ----------------------------------------------------------------------------------- */

static tsr_status check_shape(const char *who, const tsr_checkpoint_entry *entry)
{
    tsr_layout layout;
    /* Tensors cannot have dtype f64, but host memory can. i64 has the same element size. */
    tsr_dtype dtype = entry->dtype == TSR_F64 ? TSR_I64 : entry->dtype;
    tsr_status status = tsr_layout_init(dtype, entry->ndim, entry->shape, &layout);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: '%s'", who, entry->name);
    TSR__REQUIRE(entry->shard_dim >= -1 && entry->shard_dim < entry->ndim,
                 "%s: '%s': shard_dim %d is outside a shape of %d dimensions", who, entry->name,
                 entry->shard_dim, entry->ndim);
    if (entry->shard_dim < 0)
        return TSR_OK;
    const int64_t size = entry->shape[entry->shard_dim];
    TSR__REQUIRE(entry->offset >= 0 && entry->length >= 0 && entry->offset <= size &&
                     entry->length <= size - entry->offset,
                 "%s: '%s': %lld elements from %lld on are outside dim %d of %s", who, entry->name,
                 (long long)entry->length, (long long)entry->offset, entry->shard_dim,
                 TSR__SHAPE(entry->ndim, entry->shape));
    return TSR_OK;
}

static tsr_status check_tensor(const char *who, const tsr_stream *stream, bool saving,
                               const tsr_checkpoint_entry *entry)
{
    const tsr_layout *layout = tsr_tensor_layout(entry->tensor);
    TSR__REQUIRE(layout->dtype == entry->dtype &&
                     (uint64_t)tsr_layout_count(layout) == entry->count,
                 "%s: '%s': %" PRIu64 " elements of %s are in a tensor that is %s %s", who,
                 entry->name, entry->count, tsr__checkpoint_dtype(entry->dtype),
                 tsr_dtype_name(layout->dtype), TSR__SHAPE(layout->ndim, layout->shape));
    TSR__REQUIRE(stream, "%s: stream is NULL, and '%s' is in a tensor", who, entry->name);
    TSR__REQUIRE(tsr__tensor_device(entry->tensor) == tsr_stream_device(stream),
                 "%s: '%s' is not on the device of the stream", who, entry->name);
    TSR__REQUIRE(saving || !tsr__layout_repeats(layout),
                 "%s: '%s' is in a view %s that names an element more than once and cannot be "
                 "written",
                 who, entry->name, TSR__SHAPE(layout->ndim, layout->shape));
    return TSR_OK;
}

tsr_status tsr__checkpoint_check_region(const char *who, const tsr_checkpoint_entry *entry)
{
    TSR__TRY(check_shape(who, entry));
    const tsr__checkpoint_rows rows = tsr__checkpoint_rows_of(entry);
    const uint64_t elements = rows.outer * rows.row;
    TSR__REQUIRE(entry->first <= elements && entry->count <= elements - entry->first,
                 "%s: '%s': %" PRIu64 " elements from %" PRIu64
                 " on are outside a part of %" PRIu64,
                 who, entry->name, entry->count, entry->first, elements);
    return TSR_OK;
}

static tsr_status check_memory(const char *who, const tsr_stream *stream, bool saving,
                               const tsr_checkpoint_entry *entry)
{
    TSR__REQUIRE(!entry->tensor || !entry->data, "%s: '%s' has both a tensor and data", who,
                 entry->name);
    TSR__REQUIRE(entry->tensor || entry->data || entry->count == 0, "%s: '%s' has no memory", who,
                 entry->name);
    return entry->tensor ? check_tensor(who, stream, saving, entry) : TSR_OK;
}

static tsr_status check_entry(const char *who, const tsr_stream *stream, bool saving, int index,
                              const tsr_checkpoint_entry *entry)
{
    TSR__REQUIRE(entry->name, "%s: entry %d has no name", who, index);
    const char *problem = tsr__name_problem(entry->name, strlen(entry->name));
    TSR__REQUIRE(!problem, "%s: the name of entry %d %s", who, index, problem);
    TSR__REQUIRE(strcmp(entry->name, "__metadata__") != 0,
                 "%s: no tensor can be called '__metadata__'", who);
    TSR__TRY(tsr__checkpoint_check_region(who, entry));
    return check_memory(who, stream, saving, entry);
}

/* A name with its index. Both are sorted together, because qsort passes no context to its
 * comparison function. */
typedef struct named {
    const char *name;
    int index;
} named;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

tsr_status tsr__checkpoint_sort(int count, const tsr_checkpoint_entry *entries, int **out)
{
    named *list = tsr__calloc((size_t)count, sizeof *list);
    int *order = list ? tsr__calloc((size_t)count, sizeof *order) : NULL;
    if (!order) {
        tsr__free(list);
        return TSR_ERR_NO_MEMORY;
    }
    for (int i = 0; i < count; i++)
        list[i] = (named){entries[i].name, i};
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, by_name);
    for (int i = 0; i < count; i++)
        order[i] = list[i].index;
    tsr__free(list);
    *out = order;
    return TSR_OK;
}

tsr_status tsr__checkpoint_check(const char *who, const char *path, const tsr_stream *stream,
                                 bool saving, int count, const tsr_checkpoint_entry *entries)
{
    TSR__REQUIRE(path && *path, "%s: path is %s", who, path ? "empty" : "NULL");
    TSR__REQUIRE(count >= 0 && count <= TSR_SHARD_MAX_PARAMS, "%s: %d entries", who, count);
    TSR__REQUIRE(entries || count == 0, "%s: entries is NULL", who);
    for (int i = 0; i < count; i++)
        TSR__TRY(check_entry(who, stream, saving, i, &entries[i]));
    int *order = NULL;
    TSR__TRY(tsr__checkpoint_sort(count, entries, &order));
    const char *twice = NULL;
    for (int i = 1; i < count && !twice; i++)
        if (strcmp(entries[order[i - 1]].name, entries[order[i]].name) == 0)
            twice = entries[order[i]].name;
    tsr__free(order);
    TSR__REQUIRE(!twice, "%s: there are two entries '%s'", who, twice);
    return TSR_OK;
}
