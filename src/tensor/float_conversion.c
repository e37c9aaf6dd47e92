#include "tensor/float_conversion.h"

#include "base/instruction_sets.h"
#include "tensor/float_conversion_loops.h"

static const void *const instruction_sets[TSR__INSTRUCTION_SETS] =
    TSR__INSTRUCTION_SET_TABLES(tsr__converters_);

static tsr__convert_fn *converter_of(const tsr__converters *converters, tsr_dtype to,
                                     tsr_dtype from)
{
    bool known = (size_t)to < TSR__CONVERT_DTYPES && (size_t)from < TSR__CONVERT_DTYPES;

    return converters && known ? converters->convert[to][from] : NULL;
}

tsr__convert_fn *tsr__converter(tsr_dtype to, tsr_dtype from)
{
    return converter_of(tsr__instruction_set_best(instruction_sets), to, from);
}

tsr__convert_fn *tsr__converter_at(int n, tsr_dtype to, tsr_dtype from)
{
    return converter_of(tsr__instruction_set_at(instruction_sets, n), to, from);
}
