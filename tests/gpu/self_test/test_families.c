/* Every family of kernels once, on small tensors, by the cases of the self-test: all that an
 * emulator has time for. Products of floats are missing; a training tests them there. */
#include "gpu/checks/cases.h"
#include "support/check_main.h"
#include "support/gpu.h"

typedef struct family {
    const char *name;
    tsr__case_fn *run;
    tsr_dtype dtype;
} family;

/* The result of a case as a test sees it: an operation that this device cannot do is an error. */
static void check(const family *one)
{
    bool right = false;
    const tsr_status status = tsr__case_run(gpu, one->run, one->dtype, &right);
    ck_assert_msg(status == TSR_OK, "%s: %s: %s", one->name, tsr_status_name(status),
                  tsr_last_error());
    ck_assert_msg(right, "%s: the device and the host disagree", one->name);
}

/* A test for each group, and not for each case: in an emulator, opening a device takes longer than
 * most cases. */
static void check_all(const family *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check(&all[i]);
}
#define FAMILY(name, dtype)                                                                        \
    {                                                                                              \
#name, tsr__case_##name, dtype                                                             \
    }
#define CHECK_ALL(all) check_all(all, sizeof(all) / sizeof *(all))

START_TEST(rows)
{
    static const family all[] = {
        FAMILY(softmax, TSR_F32),        FAMILY(softmax_grad, TSR_F32),
        FAMILY(norm, TSR_F32),           FAMILY(norm_grad, TSR_F32),
        FAMILY(cross_entropy, TSR_F32),  FAMILY(argmax, TSR_F32),
        FAMILY(topk, TSR_F32),           FAMILY(sum_rows, TSR_F32),
        FAMILY(sum_short_rows, TSR_F32), FAMILY(sum_columns, TSR_F32),
        FAMILY(sum_squares, TSR_F32),
    };
    CHECK_ALL(all);
}
END_TEST

START_TEST(elements)
{
    static const family all[] = {
        FAMILY(multiply, TSR_F32),
        FAMILY(multiply, TSR_BF16),
        FAMILY(where, TSR_F32),
        FAMILY(silu, TSR_F32),
        FAMILY(silu_mul, TSR_F32),
        FAMILY(silu_grad, TSR_F32),
        FAMILY(transpose, TSR_F16),
        FAMILY(fill, TSR_F32),
        FAMILY(rope, TSR_F32),
        FAMILY(index_select, TSR_F32),
        FAMILY(index_add, TSR_F32),
        FAMILY(adamw, TSR_F32),
        FAMILY(sgd, TSR_F32),
        FAMILY(clip_scale, TSR_F32),
        FAMILY(kv_append, TSR_F32),
        FAMILY(rope_append, TSR_F32),
        FAMILY(random, TSR_F32),
        FAMILY(dropout, TSR_F32),
        FAMILY(embedding, TSR_F32),
        FAMILY(embedding_grad, TSR_F32),
        FAMILY(cross_entropy_shard, TSR_F32),
    };
    CHECK_ALL(all);
}
END_TEST

START_TEST(attention)
{
    static const family all[] = {
        FAMILY(attention, TSR_F32),
        FAMILY(attention_few, TSR_F32),
        FAMILY(attention_grad, TSR_F32),
    };
    CHECK_ALL(all);
}
END_TEST

START_TEST(blocks)
{
    static const family all[] = {
        FAMILY(quant_product, TSR_Q8_0), FAMILY(quant_product, TSR_Q4_K),
        FAMILY(dequantize, TSR_Q4_0),    FAMILY(dequantize, TSR_Q6_K),
        FAMILY(pack, TSR_F32),
    };
    CHECK_ALL(all);
}
END_TEST

TESTS(families)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, rows);
    tcase_add_test(tests, elements);
    tcase_add_test(tests, attention);
    tcase_add_test(tests, blocks);
}
