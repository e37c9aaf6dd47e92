/* Tests errors of tsr_matmul, and that failed calls leave y and the stream usable. */
#include "base/fault.h"
#include "gpu/matmul/matmul_case.h"
#include "gpu/matmul/matmul_force.h"

static tsr_tensor *a34, *b45, *y35;

static void make_operands(void)
{
    gpu_setup();
    a34 = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    b45 = gpu_new(TSR_F32, 2, (int64_t[]){4, 5});
    y35 = gpu_new(TSR_F32, 2, (int64_t[]){3, 5});
    gpu_poison(a34);
    gpu_poison(b45);
    gpu_poison(y35);
}

/* Checks that refused products have not changed y. */
static void drop_operands(void)
{
    double y[15];

    gpu_get(y35, y);
    for (int i = 0; i < 15; i++)
        ck_assert(isnan(y[i]));
    tsr_tensor_destroy(&a34);
    tsr_tensor_destroy(&b45);
    tsr_tensor_destroy(&y35);
    gpu_teardown();
}

START_TEST(refuses_missing_tensors)
{
    GPU_FAILS(tsr_matmul(NULL, y35, a34, b45, NULL), TSR_ERR_INVALID, "matmul: stream is NULL");
    GPU_FAILS(tsr_matmul(queue, NULL, a34, b45, NULL), TSR_ERR_INVALID, "matmul: y is NULL");
    GPU_FAILS(tsr_matmul(queue, y35, NULL, b45, NULL), TSR_ERR_INVALID, "matmul: a is NULL");
    GPU_FAILS(tsr_matmul(queue, y35, a34, NULL, NULL), TSR_ERR_INVALID, "matmul: b is NULL");
}
END_TEST

START_TEST(refuses_shapes_that_do_not_fit)
{
    tsr_tensor *row = gpu_new(TSR_F32, 1, (int64_t[]){4});
    tsr_tensor *a234 = gpu_new(TSR_F32, 3, (int64_t[]){2, 3, 4});
    tsr_tensor *y535 = gpu_new(TSR_F32, 3, (int64_t[]){5, 3, 5});

    GPU_FAILS(tsr_matmul(queue, y35, a34, y35, NULL), TSR_ERR_INVALID,
              "matmul: inner dimensions differ: a is [3,4], b is [3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.transpose_a = true)),
              TSR_ERR_INVALID,
              "matmul: inner dimensions differ: a is [3,4] transposed, b is [4,5]");
    GPU_FAILS(tsr_matmul(queue, b45, a34, b45, NULL), TSR_ERR_INVALID,
              "matmul: y is [4,5], but a [3,4] times b [4,5] is [3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, row, b45, NULL), TSR_ERR_INVALID,
              "matmul: a, b and y need 2 dimensions or more: a is [4], b is [4,5], y is [3,5]");
    GPU_FAILS(tsr_matmul(queue, y535, a234, b45, NULL), TSR_ERR_INVALID,
              "matmul: the batch dimensions of a [2,3,4] do not broadcast to those of y [5,3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, a234, b45, NULL), TSR_ERR_INVALID,
              "matmul: the batch dimensions of a [2,3,4] do not broadcast to those of y [3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.bias = row)), TSR_ERR_INVALID,
              "matmul: bias [4] does not broadcast to y [3,5]");
    tsr_tensor_destroy(&row);
    tsr_tensor_destroy(&a234);
    tsr_tensor_destroy(&y535);
}
END_TEST

START_TEST(refuses_sizes_beyond_31_bits)
{
    const int64_t huge = INT64_C(1) << 31;
    tsr_tensor *one = gpu_new(TSR_F32, 2, (int64_t[]){1, 1}), *a, *b;

    GPU_OK(tsr_tensor_broadcast(one, 2, (int64_t[]){1, huge}, &a));
    GPU_OK(tsr_tensor_broadcast(one, 2, (int64_t[]){huge, 1}, &b));
    GPU_FAILS(tsr_matmul(queue, one, a, b, NULL), TSR_ERR_INVALID,
              "matmul: k is 2147483648, more than 2147483647");
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&one);
}
END_TEST

START_TEST(refuses_other_dtypes_than_floats)
{
    tsr_tensor *whole = gpu_new(TSR_I32, 2, (int64_t[]){3, 4});
    tsr_tensor *y = gpu_new(TSR_U8, 2, (int64_t[]){3, 5});

    GPU_FAILS(tsr_matmul(queue, y35, whole, b45, NULL), TSR_ERR_INVALID,
              "matmul: a is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_matmul(queue, y, a34, b45, NULL), TSR_ERR_INVALID,
              "matmul: y is u8; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.bias = whole)), TSR_ERR_INVALID,
              "matmul: bias is i32; f32, f16 or bf16 is needed");
    tsr_tensor_destroy(&whole);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(refuses_invalid_params)
{
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.activation = (tsr_activation)9)),
              TSR_ERR_INVALID, "matmul: unknown activation 9");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, &(tsr_matmul_params){.alpha = 2}), TSR_ERR_INVALID,
              "tsr_matmul_params: struct_size is 0");
}
END_TEST

START_TEST(refuses_y_that_overlaps_or_repeats)
{
    tsr_tensor *square = gpu_new(TSR_F32, 2, (int64_t[]){8, 8}), *left, *right, *shifted, *wide;

    GPU_OK(tsr_tensor_slice(square, 1, 0, 4, 1, &left));
    GPU_OK(tsr_tensor_slice(square, 1, 4, 8, 1, &right));
    GPU_OK(tsr_tensor_slice(square, 1, 3, 7, 1, &shifted));
    tsr_tensor *small = gpu_new(TSR_F32, 2, (int64_t[]){4, 4});
    GPU_OK(tsr_matmul(queue, right, left, small, NULL)); /* the halves of one tensor are disjoint */
    GPU_FAILS(tsr_matmul(queue, shifted, left, small, NULL), TSR_ERR_INVALID,
              "matmul: y [8,4] overlaps a [8,4] in one buffer");
    GPU_FAILS(tsr_matmul(queue, left, left, small, NULL), TSR_ERR_INVALID,
              "(they are the same view)");
    GPU_FAILS(tsr_matmul(queue, square, square, square, NULL), TSR_ERR_INVALID,
              "matmul: y [8,8] overlaps a [8,8]");
    GPU_FAILS(tsr_matmul(queue, right, left, small, tsr_matmul_params(.bias = right)),
              TSR_ERR_INVALID, "matmul: y [8,4] overlaps bias [8,4]");
    GPU_FAILS(tsr_matmul(queue, small, small, small, NULL), TSR_ERR_INVALID,
              "matmul: y [4,4] overlaps a [4,4]");
    GPU_OK(tsr_tensor_broadcast(small, 3, (int64_t[]){2, 4, 4}, &wide));
    tsr_tensor *other = gpu_new(TSR_F32, 2, (int64_t[]){4, 4});
    GPU_FAILS(tsr_matmul(queue, wide, other, other, NULL), TSR_ERR_INVALID,
              "names an element more than once");
    tsr_tensor_destroy(&left);
    tsr_tensor_destroy(&right);
    tsr_tensor_destroy(&shifted);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&small);
    tsr_tensor_destroy(&other);
    tsr_tensor_destroy(&square);
}
END_TEST

START_TEST(refuses_tensors_of_another_device)
{
    tsr_device *second = NULL;
    tsr_tensor *there = NULL;

    GPU_OK(tsr_device_open(NULL, &second));
    GPU_OK(tsr_tensor_create(second, TSR_F32, 2, (int64_t[]){3, 4}, &there));
    GPU_FAILS(tsr_matmul(queue, y35, there, b45, NULL), TSR_ERR_INVALID, "matmul: a is on device");
    tsr_tensor_destroy(&there);
    tsr_device_close(&second);
}
END_TEST

static const struct {
    int64_t m, k, n;
    uint32_t splits; /* into how many ranges k is divided; 0: the usual number */
} faulty[] = {
    {3, 512, 5, 2},      /* with scratch memory, and two pipelines */
    {130, 1030, 133, 0}, /* the host writes operands in panels to scratch */
};

/* Makes each allocation or Vulkan call of a product fail in turn. A product that fails must leave y
 * unchanged, and the next one must work. */
static void survive_faults(int which, tsr__fault_kind kind, int code)
{
    const int64_t m = faulty[which].m, k = faulty[which].k, n = faulty[which].n;
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){m, n});
    double *values = malloc((size_t)(m * n) * sizeof *values);
    int failed = 0;

    ck_assert_ptr_nonnull(values);
    gpu_poison(y);
    if (faulty[which].splits > 0)
        force_splits(faulty[which].splits);
    for (uint64_t nth = 0;; nth++) {
        tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){m, k});
        tsr_tensor *b = gpu_new(TSR_F32, 2, (int64_t[]){k, n});
        tsr__fault_arm(kind, nth, code);
        tsr_status status = forced_matmul(queue, y, a, b, NULL);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
        if (!reached)
            break;
        if (status == TSR_OK) { /* the pipeline cache could not be read, which is not an error */
            gpu_poison(y);
        } else {
            failed++;
            gpu_get(y, values);
            for (int i = 0; i < m * n; i++)
                ck_assert(isnan(values[i]));
        }
        ck_assert_uint_lt(nth, 1000);
    }
    forced = NULL;
    ck_assert_int_gt(failed, 0);
    GPU_OK(tsr_stream_wait(queue));
    free(values);
    tsr_tensor_destroy(&y);
}

START_TEST(survives_vulkan_failures)
{
    survive_faults(_i, TSR__FAULT_VULKAN, -3 /* VK_ERROR_INITIALIZATION_FAILED */);
}
END_TEST

START_TEST(survives_host_memory_failures)
{
    survive_faults(_i, TSR__FAULT_ALLOC, 0);
}
END_TEST

TESTS(matmul_refusals)
{
    tcase_add_checked_fixture(tests, make_operands, drop_operands);
    tcase_add_test(tests, refuses_missing_tensors);
    tcase_add_test(tests, refuses_shapes_that_do_not_fit);
    tcase_add_test(tests, refuses_sizes_beyond_31_bits);
    tcase_add_test(tests, refuses_other_dtypes_than_floats);
    tcase_add_test(tests, refuses_invalid_params);
    tcase_add_test(tests, refuses_y_that_overlaps_or_repeats);
    tcase_add_test(tests, refuses_tensors_of_another_device);
    tcase_add_loop_test(tests, survives_vulkan_failures, 0, 2);
    tcase_add_loop_test(tests, survives_host_memory_failures, 0, 2);
}
