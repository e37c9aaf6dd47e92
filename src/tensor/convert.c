#include "tensor/convert.h"

#include "base/levels.h"
#include "tensor/convert_loops.h"

static const void *const levels[TSR__LEVELS] = TSR__LEVEL_TABLES(tsr__converters_);

static tsr__convert_fn *of(const tsr__converters *all, tsr_dtype to, tsr_dtype from)
{
    bool known = (size_t)to < TSR__CONVERT_DTYPES && (size_t)from < TSR__CONVERT_DTYPES;

    return all && known ? all->convert[to][from] : NULL;
}

tsr__convert_fn *tsr__converter(tsr_dtype to, tsr_dtype from)
{
    return of(tsr__level_best(levels), to, from);
}

tsr__convert_fn *tsr__converter_at(int n, tsr_dtype to, tsr_dtype from)
{
    return of(tsr__level_at(levels, n), to, from);
}
