/* The library in children of fork(), in which the driver's threads do not exist. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check_main.h"
#include "support/gpu.h"

enum { N = 1000 };

static tsr_tensor *x, *y;

static bool refused(tsr_status status)
{
    return status == TSR_ERR_INVALID &&
           strstr(tsr_last_error(), "was opened by the process that forked this one");
}

/* Uses the parent's device in the child. Returns the number of the check that failed; 0: none.
 * The child must not use Check's assertions, which work only in its parent. A call that waits
 * for the driver would never return. */
static int be_child(void)
{
    float one = 1;
    uint64_t point;
    bool reached;
    void *mapped;
    tsr_tensor *tensor = NULL;
    tsr_stream *stream = NULL;
    if (!refused(tsr_copy(queue, y, x)) || !refused(tsr_stream_submit(queue)) ||
        !refused(tsr_stream_wait(queue)))
        return 1;
    if (tsr_stream_mark(queue, &point) != TSR_OK ||
        !refused(tsr_stream_wait_point(queue, point, 0)) ||
        !refused(tsr_stream_reached(queue, point, &reached)))
        return 2;
    if (!refused(tsr_tensor_upload(queue, x, &one, sizeof one)) ||
        !refused(tsr_tensor_download(queue, x, &one, sizeof one)) ||
        !refused(tsr_tensor_map(x, &mapped)))
        return 3;
    if (!refused(tsr_tensor_create(gpu, TSR_F32, 0, NULL, &tensor)) || tensor ||
        !refused(tsr_stream_create(gpu, &stream)) || stream)
        return 4;
    if (!refused(tsr_stream_timer_begin(queue)))
        return 5;
    tsr_device *own = NULL;
    if (tsr_device_open(NULL, &own) != TSR_ERR_INVALID || own ||
        !strstr(tsr_last_error(), "had devices open"))
        return 6;
    tsr_tensor_destroy(&y);
    tsr_stream_destroy(&queue);
    tsr_tensor_destroy(&x);
    tsr_device_close(&gpu);
    return x || y || queue || gpu ? 7 : 0;
}

static void in_child(int (*run)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(run());
    }
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "the child ended with status %#x", (unsigned)status);
}

START_TEST(a_child_leaves_the_device_to_its_parent)
{
    static double values[N];
    x = gpu_new(TSR_F32, 0, NULL);
    y = gpu_new(TSR_F32, 1, (int64_t[]){N});
    gpu_put(x, &(double){3});
    GPU_OK(tsr_copy(queue, y, x));
    if (_i == 1)
        GPU_OK(tsr_stream_submit(queue));
    in_child(be_child);
    gpu_get(y, values);
    for (int i = 0; i < N; i++)
        ck_assert(values[i] == 3);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

static int use_a_device(void)
{
    gpu_setup();
    x = gpu_new(TSR_F32, 0, NULL);
    double value = 5;
    gpu_put(x, &value);
    gpu_get(x, &value);
    tsr_tensor_destroy(&x);
    gpu_teardown();
    return value != 5;
}

/* If the parent closed its device before the fork, the child can open its own. */
START_TEST(a_child_opens_its_own_where_none_is_open)
{
    gpu_teardown();
    in_child(use_a_device);
    gpu_setup();
}
END_TEST

TESTS(fork)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, a_child_leaves_the_device_to_its_parent, 0, 2);
    tcase_add_test(tests, a_child_opens_its_own_where_none_is_open);
}
