#include "comm/reduce/reduce.h"

#include "comm/reduce/kernels.h"

#if defined(TSR__HAVE_X86_KERNELS)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static bool always(void)
{
    return true;
}

/* The best last. */
static const struct {
    const tsr__kernels *kernels;
    bool (*is_here)(void);
} levels[] = {
    {&tsr__kernels_base, always},
#if defined(TSR__HAVE_X86_KERNELS)
    {&tsr__kernels_avx2, has_avx2},
    {&tsr__kernels_avx512, has_avx512},
#endif
};
#define LEVELS ((int)(sizeof levels / sizeof levels[0]))

const tsr__kernels *tsr__reduce_kernels_at(int n)
{
    for (int i = 0; i < LEVELS; i++) {
        if (levels[i].is_here() && n-- == 0)
            return levels[i].kernels;
    }
    return NULL;
}

const tsr__kernels *tsr__reduce_kernels(void)
{
    const tsr__kernels *best = NULL;
    for (int i = 0; i < LEVELS; i++) {
        if (levels[i].is_here())
            best = levels[i].kernels;
    }
    return best;
}

static const struct {
    const char *name;
    uint64_t size_bytes;
} elements[TSR__REDUCE_DTYPES] = {
    [0] = {"?", 0},         [TSR_F32] = {"f32", 4},   [TSR_F64] = {"f64", 8},
    [TSR_F16] = {"f16", 2}, [TSR_BF16] = {"bf16", 2}, [TSR_I32] = {"i32", 4},
    [TSR_U32] = {"u32", 4}, [TSR_I64] = {"i64", 8},   [TSR_U8] = {"u8", 1},
};

/* Any integer may arrive in an enum. */
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
