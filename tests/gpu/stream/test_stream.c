/* Order, waiting, batches and the device's timestamps. */
#include <pthread.h>
#include <string.h>

#include "gpu/pipeline/pipeline.h"
#include "gpu/stream/hazards.h"
#include "gpu/stream/profile.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"

static const int64_t one_thousand = 1000;

static double first_of(tsr_stream *stream, const tsr_tensor *tensor)
{
    float values[1000];
    GPU_OK(tsr_tensor_download(stream, tensor, values, sizeof values));
    for (int i = 1; i < 1000; i++)
        ck_assert(values[i] == values[0]);
    return (double)values[0];
}

START_TEST(work_runs_in_the_order_it_was_recorded)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand), *y = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_fill(queue, x, 1));
    /* Each step reads the previous step's result. There are far more steps than a batch holds. */
    for (int i = 0; i < 500; i++) {
        GPU_OK(tsr_scale(queue, y, x, 1, 1));
        GPU_OK(tsr_copy(queue, x, y));
    }
    ck_assert_double_eq(first_of(queue, x), 501);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* The memory of destroyed tensors becomes free while the program continues to record. */
START_TEST(a_program_does_not_run_far_ahead)
{
    int most = 0;
    for (int i = 0; i < 200; i++) {
        tsr_tensor *x = gpu_new(TSR_F32, 1, (int64_t[]){1 << 16});
        GPU_OK(tsr_fill(queue, x, 1));
        GPU_OK(tsr_stream_submit(queue));
        tsr_tensor_destroy(&x);
        int in_flight = 0;
        for (const tsr__batch *batch = queue->in_flight; batch; batch = batch->next)
            in_flight++;
        most = in_flight > most ? in_flight : most;
    }
    ck_assert_int_ge(most, 1);
    ck_assert_int_le(most, 32);
}
END_TEST

/* Bytes that are read and written count as work, too. */
START_TEST(a_batch_ends_when_it_has_enough_work)
{
    double usual = gpu->work_limit;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_fill(queue, x, 0));
    GPU_OK(tsr_stream_wait(queue));
    uint64_t before = queue->timeline->submitted;
    for (int i = 0; i < 12; i++) {
        gpu->work_limit = i < 6 ? 3 * 4000.0 * TSR__BYTE_WORK : usual;
        GPU_OK(tsr_fill(queue, x, i));
    }
    ck_assert_uint_eq(queue->timeline->submitted - before, 2);
    ck_assert_double_eq(first_of(queue, x), 11);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(streams_that_share_a_tensor_are_ordered)
{
    tsr_stream *other;
    GPU_OK(tsr_stream_create(gpu, &other));
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_fill(queue, x, 0));
    for (int i = 0; i < 100; i++) {
        GPU_OK(tsr_scale(i % 2 ? queue : other, x, x, 1, 1));
        if (i % 7 == 0)
            GPU_OK(tsr_stream_submit(queue));
    }
    ck_assert_double_eq(first_of(other, x), 100);
    ck_assert_double_eq(first_of(queue, x), 100);
    GPU_OK(tsr_scale(other, x, x, 2, 0));
    /* Destroying a stream completes its work first. */
    tsr_stream_destroy(&other);
    ck_assert_double_eq(first_of(queue, x), 200);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(many_streams_share_one_tensor)
{
    enum { STREAMS = 12 };
    tsr_stream *streams[STREAMS];
    tsr_tensor *sources[STREAMS], *sum = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_fill(queue, sum, 0));
    for (int i = 0; i < STREAMS; i++) {
        GPU_OK(tsr_stream_create(gpu, &streams[i]));
        sources[i] = gpu_new(TSR_F32, 1, &one_thousand);
        GPU_OK(tsr_fill(streams[i], sources[i], i));
    }
    for (int i = 0; i < STREAMS; i++)
        GPU_OK(tsr_binary(queue, sum, sum, sources[i], TSR_BINARY_ADD));
    ck_assert_double_eq(first_of(queue, sum), STREAMS * (STREAMS - 1) / 2.0);
    for (int i = 0; i < STREAMS; i++) {
        tsr_stream_destroy(&streams[i]);
        tsr_tensor_destroy(&sources[i]);
    }
    tsr_tensor_destroy(&sum);
}
END_TEST

START_TEST(a_tensor_may_be_destroyed_while_its_work_is_pending)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand), *y = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_fill(queue, x, 3));
    GPU_OK(tsr_copy(queue, y, x));
    tsr_tensor_destroy(&x);
    tsr_tensor *reused = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_fill(queue, reused, 9));
    ck_assert_double_eq(first_of(queue, y), 3);
    tsr_tensor_destroy(&reused);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(points)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand);
    uint64_t before, after;
    bool reached;
    GPU_OK(tsr_stream_mark(queue, &before));
    GPU_OK(tsr_stream_reached(queue, before, &reached));
    ck_assert(reached);
    GPU_OK(tsr_fill(queue, x, 3));
    GPU_OK(tsr_stream_mark(queue, &after));
    ck_assert_uint_gt(after, before);
    GPU_OK(tsr_stream_reached(queue, after, &reached));
    ck_assert(!reached); /* nothing was submitted, and tsr_stream_reached does not submit */
    GPU_OK(tsr_stream_wait_point(queue, after, UINT64_MAX));
    GPU_OK(tsr_stream_reached(queue, after, &reached));
    ck_assert(reached);
    GPU_OK(tsr_stream_wait(queue));
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(waiting_has_a_limit)
{
    /* Enough work to take longer than a nanosecond on any machine. */
    const int64_t many = 1 << 20;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &many);
    for (int i = 0; i < 4; i++)
        GPU_OK(tsr_random_normal(queue, x, 0, 1, tsr_random_params(.seed = (uint64_t)i)));
    GPU_FAILS(tsr_stream_wait_point(queue, UINT64_MAX, 1), TSR_ERR_TIMEOUT,
              "work was still running after 1 ns");
    GPU_OK(tsr_stream_wait(queue));
    GPU_OK(tsr_stream_wait_point(queue, UINT64_MAX, 1));
    tsr_tensor_destroy(&x);
}
END_TEST

/* Does work that needs several pipelines on a stream of its own. */
static void *work_alone(void *user)
{
    tsr_device *device = user;
    tsr_stream *stream;
    tsr_tensor *x, *y, *sum;
    float out[9];
    GPU_OK(tsr_stream_create(device, &stream));
    GPU_OK(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){9, 9}, &x));
    GPU_OK(tsr_tensor_create(device, TSR_F32, 2, (int64_t[]){9, 9}, &y));
    GPU_OK(tsr_tensor_create(device, TSR_F32, 1, (int64_t[]){9}, &sum));
    GPU_OK(tsr_fill(stream, x, 2));
    GPU_OK(tsr_matmul(stream, y, x, x, NULL));
    GPU_OK(tsr_scale(stream, y, y, 0.5f, 1));
    GPU_OK(tsr_reduce(stream, sum, y, 1, TSR_REDUCE_SUM, false));
    GPU_OK(tsr_tensor_download(stream, sum, out, sizeof out));
    for (int i = 0; i < 9; i++)
        ck_assert(out[i] == 9 * (36 * 0.5f + 1));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&sum);
    tsr_stream_destroy(&stream);
    return NULL;
}

/* The threads build the same pipelines at the same time. Each pipeline is kept only once. */
START_TEST(threads_with_streams_of_their_own)
{
    enum { THREADS = 4 };
    uint64_t built[2];
    for (int many = 0; many < 2; many++) {
        pthread_t threads[THREADS];
        tsr_device *device;
        GPU_OK(tsr_device_open(NULL, &device));
        for (int i = 0; many && i < THREADS; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, work_alone, device), 0);
        for (int i = 0; many && i < THREADS; i++)
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        if (!many)
            work_alone(device);
        built[many] = tsr__pipelines_built(device);
        tsr_device_close(&device);
    }
    ck_assert_uint_gt(built[0], 2);
    ck_assert_uint_eq(built[1], built[0]);
}
END_TEST

START_TEST(the_devices_clock)
{
    const int64_t many = 1 << 20;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &many);
    uint64_t ns = 0;
    GPU_FAILS(tsr_stream_timer_end(queue), TSR_ERR_INVALID,
              "there is no stream_timer_begin before it");
    GPU_FAILS(tsr_stream_timer_read(queue, &ns), TSR_ERR_INVALID, "there is no stream_timer_end");
    for (int round = 0; round < 2; round++) {
        GPU_OK(tsr_stream_timer_begin(queue));
        GPU_OK(tsr_fill(queue, x, 1));
        GPU_FAILS(tsr_stream_timer_read(queue, &ns), TSR_ERR_INVALID,
                  "there is no stream_timer_end");
        GPU_OK(tsr_stream_timer_end(queue));
        GPU_OK(tsr_stream_timer_read(queue, &ns));
        ck_assert_uint_gt(ns, 0);
        ck_assert_uint_lt(ns, UINT64_C(60000000000));
    }
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(scratch_is_lent_again_but_not_within_an_operation)
{
    tsr__buffer *a, *b, *c;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr__stream_scratch(queue, 5000, &a));
    GPU_OK(tsr__stream_scratch(queue, 5000, &b));
    ck_assert_ptr_ne(a, b);
    GPU_OK(tsr_fill(queue, x, 0)); /* with a command recorded, the next operation may get a or b */
    GPU_OK(tsr__stream_scratch(queue, 4000, &c));
    ck_assert(c == a || c == b);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(nulls_are_errors)
{
    tsr_stream *stream = NULL;
    GPU_FAILS(tsr_stream_create(NULL, &stream), TSR_ERR_INVALID, "device is NULL");
    GPU_FAILS(tsr_stream_create(gpu, NULL), TSR_ERR_INVALID, "out is NULL");
    GPU_FAILS(tsr_stream_submit(NULL), TSR_ERR_INVALID, "stream is NULL");
    GPU_FAILS(tsr_stream_wait(NULL), TSR_ERR_INVALID, "stream is NULL");
    GPU_FAILS(tsr_stream_mark(queue, NULL), TSR_ERR_INVALID, "out_point is NULL");
    GPU_FAILS(tsr_stream_reached(queue, 0, NULL), TSR_ERR_INVALID, "out is NULL");
    GPU_FAILS(tsr_stream_timer_begin(NULL), TSR_ERR_INVALID, "stream is NULL");
    tsr_stream_destroy(&stream);
    tsr_stream_destroy(NULL);
    ck_assert_ptr_null(tsr_stream_device(NULL));
    ck_assert_ptr_eq(tsr_stream_device(queue), gpu);
}
END_TEST

START_TEST(hazards)
{
    tsr__buffer a = {0}, b = {0};
    tsr__hazards pending = {0};
    const tsr__access write_a = {&a, 0, 100, true}, read_a = {&a, 50, 60, false},
                      read_rest = {&a, 100, 200, false}, write_b = {&b, 0, 100, true};
    ck_assert(!tsr__hazards_conflict(&pending, &write_a, 1, 0));
    tsr__hazards_add(&pending, &write_a, 1, 0);
    ck_assert(tsr__hazards_conflict(&pending, &read_a, 1, 0));     /* read after write */
    ck_assert(tsr__hazards_conflict(&pending, &write_a, 1, 0));    /* write after write */
    ck_assert(!tsr__hazards_conflict(&pending, &read_rest, 1, 0)); /* other bytes */
    ck_assert(!tsr__hazards_conflict(&pending, &write_b, 1, 0));   /* another buffer */
    tsr__hazards_clear(&pending);
    tsr__hazards_add(&pending, &read_a, 1, 0);
    ck_assert(!tsr__hazards_conflict(&pending, &read_a, 1, 0));
    ck_assert(tsr__hazards_conflict(&pending, &write_a, 1, 0)); /* write after read */
    while (pending.count < TSR__HAZARDS_MAX)
        tsr__hazards_add(&pending, &read_a, 1, 0);
    ck_assert(tsr__hazards_conflict(&pending, &write_b, 1, 0)); /* no room to record it */
    tsr__hazards_clear(&pending);
    tsr__hazards_add(&pending, &write_a, 1, 7);
    ck_assert(!tsr__hazards_conflict(&pending, &write_a, 1, 7)); /* pieces of one computation */
    ck_assert(tsr__hazards_conflict(&pending, &write_a, 1, 8));  /* a piece of another one */
    ck_assert(tsr__hazards_conflict(&pending, &read_a, 1, 0));
    tsr__hazards_add(&pending, &read_a, 1, 0);
    ck_assert(tsr__hazards_conflict(&pending, &write_a, 1, 7)); /* the read is no piece */
}
END_TEST

/* A product with more batch dimensions than a dispatch has, so that there are 6 dispatches. */
START_TEST(pieces_of_an_operation_have_no_barriers_between_them)
{
    static const int64_t wide_shape[] = {3, 4, 4, 8, 8}, shape[] = {2, 3, 4, 8, 8};
    static const int order[] = {1, 0, 2, 3, 4};
    tsr_tensor *whole = gpu_new(TSR_F32, 5, wide_shape), *part = NULL, *a = NULL;
    tsr_tensor *b = gpu_new(TSR_F32, 5, shape), *y = gpu_new(TSR_F32, 5, shape);
    GPU_OK(tsr_tensor_slice(whole, 1, 0, 2, 1, &part));
    tsr_layout swapped;
    GPU_OK(tsr_layout_permute(tsr_tensor_layout(part), order, &swapped));
    GPU_OK(tsr_tensor_view(part, &swapped, &a));
    GPU_OK(tsr_fill(queue, whole, 1));
    GPU_OK(tsr_fill(queue, b, 2));
    GPU_OK(tsr_fill(queue, y, 0));
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    const uint64_t before = queue->barriers, operations = queue->open->operations;
    GPU_OK(tsr_matmul(queue, y, a, b, NULL));
    ck_assert_uint_ge(queue->open->operations - operations, 2);
    ck_assert_uint_eq(queue->barriers - before, 1); /* before the first dispatch */
    GPU_OK(tsr_matmul(queue, y, a, b, NULL));
    ck_assert_uint_eq(queue->barriers - before, 2); /* another operation on the same y */
    double values[2 * 3 * 4 * 8 * 8];
    gpu_get(y, values);
    for (int i = 0; i < 2 * 3 * 4 * 8 * 8; i++)
        ck_assert_double_eq(values[i], 16);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&whole);
}
END_TEST

static const tsr__profile_kernel *counted(const tsr__profile *profile, const char *name)
{
    for (int i = 0; i < profile->kernel_count; i++)
        if (strcmp(profile->kernels[i].name, name) == 0)
            return &profile->kernels[i];
    ck_abort_msg("no command '%s' was counted", name);
}

START_TEST(commands_are_counted)
{
    static tsr__profile profile;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand), *y = gpu_new(TSR_F32, 1, &one_thousand);
    tsr_tensor *square = gpu_new(TSR_F32, 2, (const int64_t[]){8, 8}),
               *other = gpu_new(TSR_F32, 2, (const int64_t[]){8, 8});
    GPU_OK(tsr_fill(queue, x, 1));
    GPU_FAILS(tsr__stream_profile_end(queue, &profile), TSR_ERR_INVALID,
              "there is no stream_profile_begin before it");
    GPU_FAILS(tsr__stream_profile_begin(NULL), TSR_ERR_INVALID, "stream is NULL");
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_FAILS(tsr__stream_profile_begin(queue), TSR_ERR_INVALID,
              "no stream_profile_end since the last one");
    GPU_FAILS(tsr__stream_profile_end(queue, NULL), TSR_ERR_INVALID, "out is NULL");
    /* a whole tensor is filled without a kernel; the second fill is independent of the first */
    GPU_OK(tsr__stream_fill(queue, tsr__write_of(x), 0));
    GPU_OK(tsr__stream_fill(queue, tsr__write_of(square), 0));
    GPU_OK(tsr__stream_fill(queue, tsr__write_of(x), 0)); /* waits for the first one */
    GPU_OK(tsr_stream_submit(queue));
    GPU_OK(tsr__stream_update(queue, tsr__write_of(y), (const float[1000]){0}));
    GPU_OK(tsr_matmul(queue, other, square, square, NULL));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    const tsr__profile_kernel *fill = counted(&profile, "fill"),
                              *update = counted(&profile, "update");
    ck_assert_uint_eq(fill->commands, 3);
    ck_assert_uint_eq(fill->barriers, 2); /* at the start of the batch, and before the third */
    ck_assert(fill->read_bytes == 0 && fill->written_bytes == 2 * 4000 + 256);
    ck_assert(fill->operations == 0 && !fill->matrix_units);
    ck_assert_uint_eq(update->commands, 1);
    ck_assert_uint_eq(update->barriers, 1); /* of the second batch */
    ck_assert(update->written_bytes == 4000);
    ck_assert_uint_eq(profile.batches, 2);
    double operations = 0, ns = 0;
    for (int i = 0; i < profile.kernel_count; i++) {
        operations += profile.kernels[i].operations;
        ns += profile.kernels[i].ns;
        ck_assert_uint_eq(profile.kernels[i].timed,
                          profile.has_times ? profile.kernels[i].commands : 0);
    }
    ck_assert_msg(operations == 2 * 8 * 8 * 8, "%g operations", operations);
    ck_assert_int_eq(profile.has_times, gpu->info.timestamp_period_ns > 0);
    if (profile.has_times) {
        const double sum = ns + profile.gaps_ns;
        ck_assert(sum > 0.999 * profile.elapsed_ns && sum < 1.001 * profile.elapsed_ns);
    }
    /* Nothing is counted afterwards, and counting starts anew. */
    GPU_OK(tsr_fill(queue, x, 1));
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    ck_assert_int_eq(profile.kernel_count, 0);
    ck_assert_uint_eq(profile.batches, 0);
    /* A stream may be destroyed while it counts. */
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr_fill(queue, x, 1));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&square);
    tsr_tensor_destroy(&other);
}
END_TEST

/* Host steps ---------------------------------------------------------------------------------- */

typedef struct added {
    tsr_tensor *tensor; /* in host memory */
    float seen;
    int runs, cancelled;
} added;

/* A step that adds 1 to each element of a tensor. */
static void add_one(void *user, uint64_t waited_ns, bool cancelled)
{
    added *a = user;
    void *values;
    (void)waited_ns;
    a->runs++;
    a->cancelled += cancelled;
    if (cancelled)
        return;
    GPU_OK(tsr_tensor_map(a->tensor, &values));
    a->seen = ((float *)values)[0];
    for (int i = 0; i < 1000; i++)
        ((float *)values)[i] += 1;
}

static void record_step(added *a)
{
    GPU_OK(tsr__stream_host_step(queue, &a->tensor, 1, add_one, a));
}

START_TEST(the_host_works_between_commands)
{
    enum { STEPS = 40 };
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand), *y = gpu_new(TSR_F32, 1, &one_thousand);
    added steps[STEPS] = {0};
    tsr_tensor *host = NULL;
    GPU_OK(tsr_tensor_create_host(gpu, TSR_F32, 1, &one_thousand, &host));
    GPU_OK(tsr_fill(queue, host, 0));
    const tsr__stream_counts before = tsr__stream_get_counts(queue);
    /* Each step sees what was recorded before it, and later commands what it has written. */
    for (int i = 0; i < STEPS; i++) {
        steps[i].tensor = host;
        GPU_OK(tsr_scale(queue, x, host, 2, 0));
        GPU_OK(tsr_copy(queue, host, x));
        record_step(&steps[i]);
        GPU_OK(tsr_scale(queue, y, host, 1, 1));
        GPU_OK(tsr_scale(queue, host, y, 0.5f, 0));
    }
    ck_assert_int_eq((int)(tsr__stream_get_counts(queue).waits - before.waits), 0);
    float want = 0;
    const float last = (float)first_of(queue, host);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_int_eq(steps[i].runs, 1);
        ck_assert_int_eq(steps[i].cancelled, 0);
        ck_assert(steps[i].seen == 2 * want);
        want = (2 * want + 2) / 2;
    }
    ck_assert(last == want);
    ck_assert_int_eq((int)(tsr__stream_get_counts(queue).steps - before.steps), STEPS);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&host);
}
END_TEST

/* The tensors of a step are in use until it has run, although no command writes them. */
START_TEST(a_step_is_a_use_of_its_tensors)
{
    added a = {0}, b = {0};
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand);
    GPU_OK(tsr_tensor_create_host(gpu, TSR_F32, 1, &one_thousand, &a.tensor));
    GPU_OK(tsr_fill(queue, a.tensor, 4));
    GPU_OK(tsr_stream_wait(queue));
    GPU_OK(tsr_fill(queue, x, 1));
    record_step(&a);
    ck_assert_double_eq(first_of(queue, a.tensor), 5);
    ck_assert_int_eq(a.runs, 1);
    /* Another stream waits for the step, too. */
    tsr_stream *other = NULL;
    GPU_OK(tsr_stream_create(gpu, &other));
    record_step(&a);
    GPU_OK(tsr_copy(other, x, a.tensor));
    ck_assert_double_eq(first_of(other, x), 6);
    /* A step without commands before or after it. */
    record_step(&a);
    GPU_OK(tsr__stream_settle(queue));
    ck_assert_int_eq(a.runs, 3);
    /* A cancelled step, and a stream that ends with a step. */
    record_step(&a);
    tsr__stream_cancel_steps(queue);
    ck_assert_int_eq(a.cancelled, 1);
    ck_assert_double_eq(first_of(queue, a.tensor), 7);
    b.tensor = a.tensor;
    GPU_OK(tsr__stream_host_step(other, &b.tensor, 1, add_one, &b));
    tsr_stream_destroy(&other);
    ck_assert_int_eq(b.runs, 1);
    ck_assert_double_eq(first_of(queue, a.tensor), 8);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&a.tensor);
}
END_TEST

static VkResult never_wait(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout_ns)
{
    (void)device;
    (void)info;
    (void)timeout_ns;
    ck_abort_msg("the wait was to end by polling");
}

/* On GPUs a wait polls for a short time before it sleeps. On CPU drivers it does not. */
START_TEST(a_wait_polls_first)
{
    const uint64_t poll_ns = gpu->poll_ns;
    const PFN_vkWaitSemaphores wait = gpu->vk.WaitSemaphores;
    tsr_tensor *x = gpu_new(TSR_F32, 1, &one_thousand);
    ck_assert_int_eq(poll_ns > 0, gpu->info.type != TSR_DEVICE_CPU);
    gpu->poll_ns = UINT64_MAX;
    gpu->vk.WaitSemaphores = never_wait;
    GPU_OK(tsr_fill(queue, x, 1));
    GPU_OK(tsr_stream_wait(queue));
    GPU_OK(tsr_fill(queue, x, 2));
    GPU_OK(tsr_stream_wait_point(queue, UINT64_MAX, 60 * UINT64_C(1000000000)));
    /* The time-out also limits how long a wait polls; the function above is then called. */
    gpu->vk.WaitSemaphores = wait;
    GPU_OK(tsr_fill(queue, x, 3));
    const tsr_status status = tsr_stream_wait_point(queue, UINT64_MAX, 0);
    ck_assert(status == TSR_OK || status == TSR_ERR_TIMEOUT);
    gpu->poll_ns = poll_ns;
    ck_assert_double_eq(first_of(queue, x), 3);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(stream)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, work_runs_in_the_order_it_was_recorded);
    tcase_add_test(tests, a_program_does_not_run_far_ahead);
    tcase_add_test(tests, a_batch_ends_when_it_has_enough_work);
    tcase_add_test(tests, streams_that_share_a_tensor_are_ordered);
    tcase_add_test(tests, many_streams_share_one_tensor);
    tcase_add_test(tests, a_tensor_may_be_destroyed_while_its_work_is_pending);
    tcase_add_test(tests, points);
    tcase_add_test(tests, waiting_has_a_limit);
    tcase_add_test(tests, threads_with_streams_of_their_own);
    tcase_add_test(tests, the_devices_clock);
    tcase_add_test(tests, scratch_is_lent_again_but_not_within_an_operation);
    tcase_add_test(tests, nulls_are_errors);
    tcase_add_test(tests, hazards);
    tcase_add_test(tests, pieces_of_an_operation_have_no_barriers_between_them);
    tcase_add_test(tests, commands_are_counted);
    tcase_add_test(tests, the_host_works_between_commands);
    tcase_add_test(tests, a_step_is_a_use_of_its_tensors);
    tcase_add_test(tests, a_wait_polls_first);
}
