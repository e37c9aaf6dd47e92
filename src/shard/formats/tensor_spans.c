/* Checks for weights files of all formats: tensors do not overlap, and their names differ. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "shard/formats/readers.h"
#include "json/text_check.h"

tsr_status tsr__spans_add(tsr__spans *spans, const tsr__params *params, uint64_t start,
                          uint64_t end, uint64_t header_at)
{
    void *items = spans->items;
    TSR__TRY(tsr__grow(&items, &spans->capacity, spans->count + 1, sizeof *spans->items));
    spans->items = items;
    spans->items[spans->count++] = (tsr__span){start, end, header_at, params->count - 1};
    return TSR_OK;
}

static int by_start(const void *a, const void *b)
{
    const tsr__span *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

tsr_status tsr__spans_check(const tsr__file *file, const tsr__params *params, tsr__spans *spans,
                            bool gapless, uint64_t size)
{
    char text[TSR__NAME_SHORT], other[TSR__NAME_SHORT];
    uint64_t end = 0;
    const char *last = "";
    if (spans->count > 0)
        qsort(spans->items, spans->count, sizeof *spans->items, by_start);
    for (size_t i = 0; i < spans->count; i++) {
        const tsr__span *span = &spans->items[i];
        const char *name = params->items[span->param].name;
        if (span->start < end && span->end > span->start)
            return tsr__file_fail(file, TSR_ERR_INVALID, span->header_at,
                                  "tensor '%s' starts at byte %" PRIu64
                                  " of the weights, but '%s' goes on to byte %" PRIu64,
                                  tsr__name_short(name, text), span->start,
                                  tsr__name_short(last, other), end);
        if (gapless && span->start > end)
            return tsr__file_fail(file, TSR_ERR_INVALID, span->header_at,
                                  "bytes %" PRIu64 " to %" PRIu64
                                  " of the weights, before tensor '%s', belong to no tensor",
                                  end, span->start - 1, tsr__name_short(name, text));
        if (span->end > end) {
            end = span->end;
            last = name;
        }
    }
    if (gapless && end < size)
        return tsr__file_fail(file, TSR_ERR_INVALID, file->size - (size - end),
                              "the last %" PRIu64 " bytes of the weights belong to no tensor",
                              size - end);
    return TSR_OK;
}

tsr_status tsr__check_names(const char *what, const tsr__params *params, const tsr__spans *spans)
{
    tsr__param_name *names = NULL;
    char text[TSR__NAME_SHORT];
    TSR__TRY(tsr__params_sort(params, &names));
    const tsr__param_name *twice = tsr__params_twice(names, params->count);
    tsr_status status = TSR_OK;
    if (twice != NULL)
        status =
            tsr__fail(TSR_ERR_INVALID, "%s: offset %" PRIu64 ": the name '%s' is used twice", what,
                      spans->items[twice[1].param].header_at, tsr__name_short(twice->name, text));
    tsr__free(names);
    return status;
}
