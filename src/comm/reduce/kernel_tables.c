#include "comm/reduce/reduce.h"

#include "base/instruction_sets.h"

static const void *const tables[TSR__INSTRUCTION_SETS] = TSR__INSTRUCTION_SET_TABLES(tsr__kernels_);

const tsr__kernels *tsr__reduce_kernels_at(int n)
{
    return tsr__instruction_set_at(tables, n);
}

const tsr__kernels *tsr__reduce_kernels(void)
{
    return tsr__instruction_set_best(tables);
}

static const struct {
    const char *name;
    uint64_t size_bytes;
} elements[TSR__REDUCE_DTYPES] = {
    [0] = {"?", 0},         [TSR_F32] = {"f32", 4},   [TSR_F64] = {"f64", 8},
    [TSR_F16] = {"f16", 2}, [TSR_BF16] = {"bf16", 2}, [TSR_I32] = {"i32", 4},
    [TSR_U32] = {"u32", 4}, [TSR_I64] = {"i64", 8},   [TSR_U8] = {"u8", 1},
};

/* Returns the row of a kernel table (tsr__kernels) for a dtype. Row 0 has no kernels; it is for
 * invalid dtypes, because an enum may have any integer value. */
static size_t row_of(tsr_dtype dtype)
{
    size_t row = (size_t)dtype;
    return row < TSR__REDUCE_DTYPES ? row : 0;
}

uint64_t tsr__element_size(tsr_dtype dtype)
{
    return elements[row_of(dtype)].size_bytes;
}

const char *tsr__element_name(tsr_dtype dtype)
{
    return elements[row_of(dtype)].name;
}

const char *tsr__op_name(tsr_op op)
{
    static const char *const names[TSR__REDUCE_OPS] = {"?", "sum", "avg", "min", "max", "prod"};
    size_t row = (size_t)op;
    return names[row < TSR__REDUCE_OPS ? row : 0];
}
