/* Tests the number of pipelines that are kept, and which of them are dropped. */
#include "gpu/device/device.h"
#include "gpu/matmul/matmul_case.h"
#include "gpu/pipeline/pipeline.h"
#include "tessera/ops.h"

/* Gets a pipeline that is different for every `number`: it sets constant 9, which the shader
 * ignores because it does not have it. */
static tsr__pipeline *get(uint32_t number)
{
    uint32_t spec[10] = {64, 0, 0, 0, 0, 0, 0, 0, 0, number};
    tsr__pipeline *pipeline;

    GPU_OK(tsr__pipeline_get(gpu, TSR__SHADER_FILL, spec, 10, &pipeline));
    return pipeline;
}

static void use(uint32_t number)
{
    tsr__pipeline_release(get(number));
}

START_TEST(cpu_drivers_keep_a_bounded_number)
{
    if (gpu->traits.device_class == TSR__CLASS_GPU)
        ck_assert_uint_eq(tsr__pipelines_limit(gpu), UINT64_MAX);
    else
        ck_assert_uint_eq(tsr__pipelines_limit(gpu), TSR__CPU_PIPELINES);
}
END_TEST

START_TEST(the_least_recently_used_goes_first)
{
    ck_assert(tsr__pipelines_set_limit(gpu, 4) == TSR_OK);
    for (uint32_t i = 0; i < 10; i++)
        use(i);
    ck_assert_uint_eq(tsr__pipelines_built(gpu), 10);
    ck_assert_uint_eq(tsr__pipelines_kept(gpu), 4);
    use(9); /* the last four still exist */
    use(7);
    use(6);
    use(8);
    ck_assert_uint_eq(tsr__pipelines_built(gpu), 10);
    use(0); /* takes the place of 9 */
    ck_assert_uint_eq(tsr__pipelines_built(gpu), 11);
    use(7);
    use(6);
    use(8);
    ck_assert_uint_eq(tsr__pipelines_built(gpu), 11);
    use(9);
    ck_assert_uint_eq(tsr__pipelines_built(gpu), 12);
    ck_assert_uint_eq(tsr__pipelines_kept(gpu), 4);
}
END_TEST

START_TEST(those_in_use_stay)
{
    tsr__pipeline *held[10];

    ck_assert(tsr__pipelines_set_limit(gpu, 4) == TSR_OK);
    for (uint32_t i = 0; i < 10; i++)
        held[i] = get(i);
    ck_assert_uint_eq(tsr__pipelines_kept(gpu), 10);
    for (uint32_t i = 0; i < 10; i++)
        use(i);
    ck_assert_uint_eq(tsr__pipelines_built(gpu), 10);
    for (uint32_t i = 0; i < 10; i++)
        tsr__pipeline_release(held[i]);
    use(10);
    ck_assert_uint_eq(tsr__pipelines_kept(gpu), 4);
}
END_TEST

/* A batch keeps the pipelines of its commands until it is complete. */
START_TEST(batches_keep_theirs)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    enum { KINDS = 9 };
    tsr_tensor *x[3], *y[KINDS];
    int64_t count = 77;

    ck_assert(tsr__pipelines_set_limit(gpu, 1) == TSR_OK);
    for (int i = 0; i < 3; i++) {
        x[i] = gpu_new(dtypes[i], 1, &count);
        GPU_OK(tsr_fill(queue, x[i], 3 + i));
    }
    for (int i = 0; i < KINDS; i++) {
        y[i] = gpu_new(dtypes[i % 3], 1, &count);
        GPU_OK(tsr_scale(queue, y[i], x[i / 3], 2, 0));
    }
    ck_assert_uint_gt(tsr__pipelines_kept(gpu), 1); /* nothing was submitted yet */
    for (int i = 0; i < KINDS; i++) {
        double values[77];
        gpu_get(y[i], values);
        for (int j = 0; j < count; j++)
            ck_assert_double_eq(values[j], 2 * (3 + i / 3));
        tsr_tensor_destroy(&y[i]);
    }
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&x[i]);
    GPU_OK(tsr_stream_wait(queue));
    use(0);
    ck_assert_uint_eq(tsr__pipelines_kept(gpu), 1);
}
END_TEST

/* If the shapes of a program change all the time, no more pipelines are kept than the limit
 * allows. */
START_TEST(changing_shapes)
{
    const uint64_t limit = 3;
    gpu_random random = {7};

    ck_assert(tsr__pipelines_set_limit(gpu, limit) == TSR_OK);
    for (int i = 0; i < 25; i++) {
        matmul_case c =
            plain_case(gpu_random_between(&random, 1, 70), gpu_random_between(&random, 1, 300),
                       gpu_random_between(&random, 1, 70));
        c.transpose_b = i % 2;
        run_case(&random, &c);
        GPU_OK(tsr_stream_wait(queue));
        use((uint32_t)i);
        ck_assert_uint_le(tsr__pipelines_kept(gpu), limit);
    }
    ck_assert_uint_gt(tsr__pipelines_built(gpu), 25);
}
END_TEST

TESTS(pipelines)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, cpu_drivers_keep_a_bounded_number);
    tcase_add_test(tests, the_least_recently_used_goes_first);
    tcase_add_test(tests, those_in_use_stay);
    tcase_add_test(tests, batches_keep_theirs);
    tcase_add_test(tests, changing_shapes);
}
