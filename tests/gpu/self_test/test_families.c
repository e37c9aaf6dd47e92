/* Runs every family of kernels once on small tensors, with the cases of the self-test. An emulator
 * has no time for more. Products of floats are left out, because a training tests them there. */
#include "gpu/checks/cases.h"
#include "gpu/checks/tested_kernels.h"
#include "support/check_main.h"
#include "support/gpu.h"

/* The tests divide the cases: each opens a device and runs every PARTS-th case, because in an
 * emulator opening a device takes longer than most cases. */
#define PARTS 4

/* Runs a case. If the device cannot compute the operation, that is an error, unless its kernel is
 * optional. */
static void run(const tsr__check *check, tsr_dtype dtype)
{
    bool right = false;
    const tsr_status status = tsr__case_run(gpu, check->run, dtype, &right);
    if (status == TSR_ERR_UNSUPPORTED && check->optional)
        return;
    ck_assert_msg(status == TSR_OK, "%s, %s: %s: %s", check->name, tsr_dtype_name(dtype),
                  tsr_status_name(status), tsr_last_error());
    ck_assert_msg(right, "%s, %s: the device and the host disagree", check->name,
                  tsr_dtype_name(dtype));
}

static bool is_repeated(int number, const tsr__check *check)
{
    tsr__check before;
    for (int i = 0; i < number && tsr__check_at(i, &before); i++)
        if (before.run == check->run && before.only == check->only)
            return true;
    return false;
}

static void run_dtypes(const tsr__check *check)
{
    if (check->cached) {
        run(check, TSR_Q8_0);
        return;
    }
    if (check->blocks) {
        run(check, TSR_Q8_0);
        run(check, check->run == tsr__case_dequantize ? TSR_Q6_K : TSR_Q4_K);
        return;
    }
    run(check, check->only ? check->only : TSR_F32);
    /* elements of 16 bits */
    if (check->run == tsr__case_multiply)
        run(check, TSR_BF16);
    if (check->run == tsr__case_transpose)
        run(check, TSR_F16);
}

START_TEST(families)
{
    tsr__check check;
    int count = 0;
    for (int i = 0; tsr__check_at(i, &check); i++)
        if (!is_repeated(i, &check) && count++ % PARTS == _i)
            run_dtypes(&check);
    ck_assert_int_ge(count, 40);
}
END_TEST

TESTS(families)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, families, 0, PARTS);
}
