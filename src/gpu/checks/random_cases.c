/* Cases of random numbers. */
#include "base/philox.h"
#include "gpu/checks/cases.h"
#include "tessera/ops.h"

/* The generator makes blocks of four numbers. With this offset and count, the first and the last
 * block are used only in part, and more than one workgroup is needed. */
enum { COUNT = 301 };
static const tsr_random_params source = {
    .struct_size = sizeof source, .seed = UINT64_C(0x9e3779b97f4a7c15), .offset = 3};

static uint32_t word_of(int index)
{
    return tsr__philox_word(source.seed, source.subsequence, source.offset + (uint64_t)index);
}

/* Numbers from 1 to 2. The tolerance of the comparison covers numbers that the dtype rounds up to
 * 2. */
tsr_status tsr__case_random(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_1(COUNT)));
    for (int i = 0; i < COUNT; i++)
        c->value[0][i] = 1 + (word_of(i) >> 8) * 0x1p-24;
    return tsr_random_uniform(c->stream, c->tensor[0], 1, 2, &source);
}

/* Dropout with p = 1/4. */
tsr_status tsr__case_dropout(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COUNT)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_1(COUNT)));
    for (int i = 0; i < COUNT; i++)
        c->value[1][i] = word_of(i) < UINT32_C(1) << 30 ? 0 : c->value[0][i] / 0.75;
    return tsr_dropout(c->stream, c->tensor[1], c->tensor[0], 0.25F, &source);
}
