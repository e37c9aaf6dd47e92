/* Finds the tensors of a file that entries read. */
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "shard/formats/readers.h"
#include "tensor/check.h"

static tsr_status compare_with_param(const char *who, const char *path,
                                     const tsr_checkpoint_entry *entry,
                                     const tsr_shard_param *found)
{
    bool same = found->ndim == entry->ndim;
    for (int d = 0; d < entry->ndim && same; d++)
        same = found->shape[d] == entry->shape[d];
    TSR__REQUIRE(same, "%s: %s: '%s' is %s in the file, not %s", who, path, entry->name,
                 TSR__SHAPE(found->ndim, found->shape), TSR__SHAPE(entry->ndim, entry->shape));
    TSR__REQUIRE(strcmp(found->dtype, tsr__checkpoint_dtype(entry->dtype)) == 0,
                 "%s: %s: '%s' is %s in the file, not %s", who, path, entry->name, found->dtype,
                 tsr__checkpoint_dtype(entry->dtype));
    return TSR_OK;
}

/* Goes through entries and parameters in the order of their names. */
static tsr_status match_sorted(const char *who, const char *path, int count,
                               const tsr_checkpoint_entry *entries, const int *order,
                               const tsr__params *params, const tsr__param_name *names, bool strict,
                               const tsr_shard_param **found)
{
    size_t next = 0;
    for (int i = 0; i < count; i++) {
        const tsr_checkpoint_entry *entry = &entries[order[i]];
        for (; next < params->count && strcmp(names[next].name, entry->name) < 0; next++)
            TSR__REQUIRE(!strict, "%s: %s: no entry reads '%s'", who, path, names[next].name);
        if (next == params->count || strcmp(names[next].name, entry->name) != 0)
            return tsr__fail(TSR_ERR_NOT_FOUND, "%s: %s: there is no '%s'", who, path, entry->name);
        found[order[i]] = &params->items[names[next++].param];
        TSR__TRY(compare_with_param(who, path, entry, found[order[i]]));
    }
    TSR__REQUIRE(!strict || next == params->count, "%s: %s: no entry reads '%s'", who, path,
                 names[next].name);
    return TSR_OK;
}

tsr_status tsr__checkpoint_match(const char *who, const char *path, const tsr__params *params,
                                 int count, const tsr_checkpoint_entry *entries, bool strict,
                                 const tsr_shard_param **found)
{
    tsr__param_name *names = NULL;
    int *order = NULL;
    TSR__TRY(tsr__params_sort(params, &names));
    tsr_status status = tsr__checkpoint_sort(count, entries, &order);
    if (status == TSR_OK)
        status = match_sorted(who, path, count, entries, order, params, names, strict, found);
    tsr__free(order);
    tsr__free(names);
    return status;
}
