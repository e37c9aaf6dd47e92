/* Which case tests which kernel, and opening devices whose kernels are tested. Kernels for products
 * have cases of their own (matmul/self_test.c). */
#include "gpu/checks/checks.h"
#include "base/error.h"
#include "gpu/checks/cases.h"
#include "gpu/matmul/self_test.h"
#include "gpu/self_test/self_test.h"
#include "shaders/params/quant.h"

typedef struct shader_case {
    tsr__shader shader;
    int dtype_at; /* the specialization constant that has the dtype of the input */
    tsr__case_fn *run;
} shader_case;

/* Kernels that are not listed are used without a test. */
static const shader_case cases[] = {
    {TSR__SHADER_SOFTMAX, 2, tsr__case_softmax},
    {TSR__SHADER_SOFTMAX_GRAD, 2, tsr__case_softmax_grad},
    {TSR__SHADER_NORM, 2, tsr__case_norm},
    {TSR__SHADER_NORM_GRAD, 2, tsr__case_norm_grad},
    {TSR__SHADER_NORM_COLUMNS, 1, tsr__case_norm_grad},
    {TSR__SHADER_CROSS_ENTROPY, 2, tsr__case_cross_entropy},
    {TSR__SHADER_ARGMAX, 1, tsr__case_argmax},
    {TSR__SHADER_REDUCE_ROWS, 1, tsr__case_sum_rows},
    {TSR__SHADER_REDUCE_SHORT, 1, tsr__case_sum_short_rows},
    {TSR__SHADER_REDUCE_COLUMNS, 1, tsr__case_sum_columns},
    {TSR__SHADER_ELEMENTWISE, 2, tsr__case_multiply},
    {TSR__SHADER_ACTIVATE, 2, tsr__case_silu},
    {TSR__SHADER_COPY, 1, tsr__case_transpose},
    {TSR__SHADER_COPY_TILE, 0, tsr__case_transpose},
    {TSR__SHADER_ROPE, 2, tsr__case_rope},
    {TSR__SHADER_INDEX_SELECT, 1, tsr__case_index_select},
    {TSR__SHADER_INDEX_ADD, 2, tsr__case_index_add},
    {TSR__SHADER_ADAMW, 2, tsr__case_adamw},
    {TSR__SHADER_ATTENTION, 4, tsr__case_attention},
    {TSR__SHADER_ATTENTION_FEW, 3, tsr__case_attention_few},
    {TSR__SHADER_ATTENTION_MERGE, 1, tsr__case_attention_few},
    {TSR__SHADER_MATMUL_QUANT, TSR_QUANT_SPECS + 3, tsr__case_quant_few},
    {TSR__SHADER_DEQUANTIZE, TSR_QUANT_SPECS + 1, tsr__case_quant_many},
};
enum { CASES = sizeof cases / sizeof *cases };

static const char *name_of(const shader_case *entry)
{
    return tsr__shader_binaries[entry->shader].name;
}

static tsr_status check_shader(tsr_device *device, const char *name, tsr_dtype dtype, bool *out)
{
    for (int i = 0; i < CASES; i++)
        if (name_of(&cases[i]) == name)
            return tsr__case_run(device, cases[i].run, dtype, out);
    return TSR_ERR_UNSUPPORTED;
}

static bool is_tested(tsr_dtype dtype)
{
    return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16;
}

static tsr_status admit(tsr_device *device, int shader, const uint32_t *spec, int spec_count,
                        bool *settled)
{
    *settled = !tsr__in_check();
    for (int i = 0; i < CASES; i++) {
        const shader_case *entry = &cases[i];
        if ((int)entry->shader != shader || entry->dtype_at >= spec_count)
            continue;
        tsr_dtype dtype = (tsr_dtype)spec[entry->dtype_at];
        if (is_tested(dtype) && !tsr__kernel_works(device, name_of(entry), dtype, check_shader))
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "the kernel %s has failed its self-test for %s on %s; "
                             "TESSERA_SELF_TEST=off uses it nevertheless",
                             name_of(entry), tsr_dtype_name(dtype), device->info.name);
    }
    return TSR_OK;
}

void tsr__self_test_all(tsr_device *device)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};

    tsr__matmul_test_all(device);
    for (int i = 0; i < CASES; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            (void)tsr__kernel_works(device, name_of(&cases[i]), dtypes[d], check_shader);
}

bool tsr__self_test_shader(tsr_device *device, tsr__shader shader, tsr_dtype dtype)
{
    for (int i = 0; i < CASES; i++)
        if (cases[i].shader == shader)
            return tsr__kernel_works(device, name_of(&cases[i]), dtype, check_shader);
    return true;
}

tsr_status tsr_device_open(const tsr_device_params *params, tsr_device **out)
{
    tsr__self_test_mode mode;
    tsr_device *device;

    if (tsr__self_test_mode_wanted(&mode) != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "device_open");
    TSR__REQUIRE(out != NULL, "device_open: out is NULL");
    TSR__TRY(tsr__device_open(params, &device));
    if (mode != TSR__SELF_TEST_OFF) {
        device->self_tested = true;
        device->admit = admit;
    }
    if (mode == TSR__SELF_TEST_FULL)
        tsr__self_test_all(device);
    *out = device;
    return TSR_OK;
}
