/* Runs a workload that uses all of the library, and makes every host allocation and every Vulkan
 * call that can fail do so, one in each run. Each time the status must be right and the text
 * must name the call, outputs must be unchanged, the remaining objects must still be able to do
 * the work, and all objects can be closed. The sanitizer lane detects leaks. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/internal.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"

static const uint32_t saxpy_spirv[] =
#include "saxpy.inc"
    ;

/* The workload --------------------------------------------------------------------------------- */

/* INNER is small because pipelines are rebuilt after every failure, and compiling takes longer
 * the more CPU drivers unroll the loop over INNER. */
enum { ROWS = 24, COLUMNS = 40, INNER = 8, LONG = 300000 };

typedef struct work {
    tsr_device_list *list;
    tsr_device *device;
    tsr_stream *stream, *other;
    tsr_tensor *a, *b, *bias, *y, *sum, *longer, *total;
    tsr_tensor *whole, *view, *packed, *host;
    tsr_kernel *kernel;
    float results[ROWS * COLUMNS + ROWS + 2];
    uint64_t ns;
    bool staged;
    bool may_abandon; /* closing may leave memory to work that could not be waited for */
} work;

/* Outputs point to this before a call that fails, and must still do so after it. */
static char unwritten;

/* For functions that create an object: on failure the output must be unchanged. A second run uses
 * the object that the first one created. */
#define CREATE(object, call)                                                                       \
    do {                                                                                           \
        if (object)                                                                                \
            break;                                                                                 \
        (object) = (void *)&unwritten;                                                             \
        tsr_status status_ = (call);                                                               \
        if (status_ != TSR_OK) {                                                                   \
            ck_assert_msg((void *)(object) == (void *)&unwritten, "%s: written on failure",        \
                          #call);                                                                  \
            (object) = NULL;                                                                       \
            return status_;                                                                        \
        }                                                                                          \
        ck_assert_msg((void *)(object) != (void *)&unwritten, "%s: not written", #call);           \
    } while (0)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status status_ = (call);                                                               \
        if (status_ != TSR_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

static tsr_status list_devices(work *w)
{
    CREATE(w->list, tsr_device_list_create(&w->list));
    return TSR_OK;
}

static tsr_status open_device(work *w)
{
    CREATE(w->device, tsr_device_open(tsr_device_params(.force_staging = w->staged), &w->device));
    w->device->host_copies = false; /* host copies make no calls that can fail */
    return TSR_OK;
}

static tsr_status create_streams(work *w)
{
    CREATE(w->stream, tsr_stream_create(w->device, &w->stream));
    CREATE(w->other, tsr_stream_create(w->device, &w->other));
    return TSR_OK;
}

static tsr_status create_tensors(work *w)
{
    const struct {
        tsr_tensor **tensor;
        int64_t shape[4];
        int ndim;
    } table[] = {
        {&w->a, {ROWS, INNER}, 2},   {&w->b, {INNER, COLUMNS}, 2}, {&w->bias, {COLUMNS}, 1},
        {&w->y, {ROWS, COLUMNS}, 2}, {&w->sum, {ROWS}, 1},         {&w->longer, {LONG}, 1},
        {&w->total, {1}, 1},         {&w->whole, {4, 5, 6, 7}, 4}, {&w->packed, {4, 3, 6, 3}, 4},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        CREATE(*table[i].tensor, tsr_tensor_create(w->device, TSR_F32, table[i].ndim,
                                                   table[i].shape, table[i].tensor));
    CREATE(w->host, tsr_tensor_create_host(w->device, TSR_F32, 1, (int64_t[]){ROWS}, &w->host));
    return TSR_OK;
}

static tsr_status create_views(work *w)
{
    tsr_tensor *half = NULL;
    if (w->view)
        return TSR_OK;
    CREATE(half, tsr_tensor_slice(w->whole, 1, 0, TSR_END, 2, &half));
    w->view = (void *)&unwritten;
    tsr_status status = tsr_tensor_slice(half, 3, 0, 6, 2, &w->view);
    tsr_tensor_destroy(&half);
    if (status != TSR_OK) {
        ck_assert_ptr_eq(w->view, (void *)&unwritten);
        w->view = NULL;
    }
    return status;
}

static tsr_status create_kernel(work *w)
{
    const uint32_t constants[] = {64, 0x3f800000};
    CREATE(w->kernel,
           tsr_kernel_create(w->device,
                             tsr_kernel_params(.spirv = saxpy_spirv,
                                               .spirv_words = sizeof saxpy_spirv / 4,
                                               .tensor_count = 2, .scalar_bytes = 8,
                                               .constants = constants, .constant_count = 2),
                             &w->kernel));
    return TSR_OK;
}

static tsr_status upload(work *w)
{
    static float values[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)(i % 17) * 0.25f - 2;
    TRY(tsr_tensor_upload(w->stream, w->a, values, ROWS * INNER * 4));
    TRY(tsr_tensor_upload(w->stream, w->bias, values, COLUMNS * 4));
    TRY(tsr_fill(w->stream, w->whole, 1));
    TRY(tsr_fill(w->stream, w->y, 7));
    /* Downloading or uploading a strided view needs scratch memory if the tensor's memory is not
     * mapped. */
    return tsr_tensor_upload(w->stream, w->view, values, 4 * 3 * 6 * 3 * 4);
}

static bool has_timer(const work *w)
{
    return tsr_device_get_info(w->device)->timestamp_period_ns > 0;
}

static tsr_status compute(work *w)
{
    TRY(tsr_random_uniform(w->stream, w->b, -1, 1, tsr_random_params(.seed = 5)));
    if (has_timer(w))
        TRY(tsr_stream_timer_begin(w->stream));
    TRY(tsr_matmul(w->stream, w->y, w->a, w->b, tsr_matmul_params(.bias = w->bias)));
    if (has_timer(w))
        TRY(tsr_stream_timer_end(w->stream));
    TRY(tsr_reduce(w->stream, w->sum, w->y, 1, TSR_REDUCE_MAX, false));
    return tsr_copy(w->stream, w->host, w->sum);
}

/* Runs operations that need several dispatches each. */
static tsr_status compute_in_parts(work *w)
{
    TRY(tsr_random_uniform(w->stream, w->longer, 0, 1, tsr_random_params(.seed = 6)));
    TRY(tsr_reduce(w->stream, w->total, w->longer, 0, TSR_REDUCE_SUM, false));
    return tsr_copy(w->stream, w->packed, w->view);
}

/* Runs the kernel on the other stream after the work on this stream, and then on this stream after
 * the work on the other one. */
static tsr_status run_kernel(work *w)
{
    const tsr_kernel_argument arguments[] = {
        tsr_kernel_argument(.tensor = w->sum),
        tsr_kernel_argument(.tensor = w->sum, .written = true)};
    const struct {
        uint32_t n;
        float scale;
    } scalars = {ROWS, 1};
    const uint32_t groups[] = {1, 1, 1};
    TRY(tsr_kernel_run(w->other, w->kernel, arguments, &scalars, groups));
    return tsr_kernel_run(w->stream, w->kernel, arguments, &scalars, groups);
}

static tsr_status read_back(work *w)
{
    float *at = w->results;
    TRY(tsr_tensor_download(w->stream, w->y, at, ROWS * COLUMNS * 4));
    at += ROWS * COLUMNS;
    TRY(tsr_tensor_download(w->stream, w->sum, at, ROWS * 4));
    at += ROWS;
    TRY(tsr_tensor_download(w->stream, w->total, at, 4));
    tsr_tensor *one = NULL;
    CREATE(one, tsr_tensor_slice(w->packed, 3, 1, 2, 1, &one));
    float column[4 * 3 * 6];
    tsr_status status = tsr_tensor_download(w->stream, one, column, sizeof column);
    tsr_tensor_destroy(&one);
    TRY(status);
    at[1] = column[4 * 3 * 6 - 1];
    return TSR_OK;
}

static tsr_status wait_for_all(work *w)
{
    uint64_t point = 0;
    bool reached = false;
    if (has_timer(w))
        TRY(tsr_stream_timer_read(w->stream, &w->ns));
    TRY(tsr_fill(w->other, w->longer, 0));
    TRY(tsr_stream_mark(w->other, &point));
    TRY(tsr_stream_submit(w->other));
    TRY(tsr_stream_reached(w->other, point, &reached));
    TRY(tsr_stream_wait_point(w->other, point, UINT64_MAX));
    return tsr_stream_wait_point(w->stream, UINT64_MAX, UINT64_MAX);
}

/* Records more commands than a batch holds, so that a batch is submitted before the end. */
static tsr_status many_commands(work *w)
{
    for (int i = 0; i < 120; i++)
        TRY(tsr_fill(w->stream, w->longer, i));
    return tsr_stream_wait(w->stream);
}

/* Calls functions that return no status. They must log their failures. */
static tsr_status save(work *w)
{
    tsr__pipelines_save(w->device);
    return TSR_OK;
}

static tsr_status close_all(work *w)
{
    tsr_tensor **tensors[] = {&w->a,     &w->b,    &w->bias,  &w->y,      &w->sum, &w->longer,
                              &w->total, &w->view, &w->whole, &w->packed, &w->host};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(tensors[i]);
    tsr_kernel_destroy(&w->kernel);
    tsr_stream_destroy(&w->stream);
    tsr_stream_destroy(&w->other);
    uint64_t used_bytes = 0;
    tsr_device_memory_usage(w->device, NULL, &used_bytes);
    ck_assert_msg(used_bytes == 0 || w->may_abandon, "%llu bytes of device memory are still in use",
                  (unsigned long long)used_bytes);
    tsr_device_close(&w->device);
    tsr_device_list_destroy(&w->list);
    return TSR_OK;
}

typedef struct step {
    const char *name;
    tsr_status (*run)(work *w);
    bool silent; /* the step cannot return an error, but must log it */
} step;

static const step steps[] = {
    {"list_devices", list_devices, false},
    {"open_device", open_device, false},
    {"create_streams", create_streams, false},
    {"create_tensors", create_tensors, false},
    {"create_views", create_views, false},
    {"create_kernel", create_kernel, false},
    {"upload", upload, false},
    {"compute", compute, false},
    {"compute_in_parts", compute_in_parts, false},
    {"run_kernel", run_kernel, false},
    {"read_back", read_back, false},
    {"wait_for_all", wait_for_all, false},
    {"many_commands", many_commands, false},
    {"save", save, true},
};
#define STEPS (sizeof steps / sizeof *steps)
#define BEFORE_COMPUTING 5 /* the number of steps that only create objects */

/* Checking ------------------------------------------------------------------------------------- */

static char log_text[4096];

static void on_log(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    (void)level;
    size_t used = strlen(log_text);
    strncat(log_text, message, sizeof log_text - used - 1);
}

static const char *code_name(tsr__fault_kind kind, int code)
{
    return kind == TSR__FAULT_ALLOC ? "allocation" : tsr__vk_result_name((VkResult)code);
}

/* Returns true if the failure makes listing show the device as not usable. */
static bool not_usable_then(int code, const char *site)
{
    return tsr__vk_status((VkResult)code) != TSR_ERR_NO_MEMORY &&
           (strcmp(site, "vkEnumerateDeviceExtensionProperties") == 0 ||
            strcmp(site, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0 ||
            strcmp(site, "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV") ==
                0);
}

/* Returns true for the calls that make the next batch. If they fail, the full batch continues and
 * is submitted later, and the log says so. */
static bool is_of_next_batch(const char *site)
{
    static const char *const calls[] = {"vkCreateCommandPool", "vkAllocateCommandBuffers",
                                        "vkResetCommandPool", "vkBeginCommandBuffer",
                                        "vkQueueSubmit"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(site, calls[i]) == 0)
            return true;
    return false;
}

/* Returns true for failures that the library must handle so that the call still succeeds: an
 * optional query; memory that is then allocated in smaller portions; a cache file that is not
 * read; a batch that continues. */
static bool made_up_for(tsr__fault_kind kind, int code, const char *site, const step *where)
{
    static const char *const slab[] = {"vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory",
                                       "vkMapMemory"};
    const bool continued = strstr(log_text, "submitting a batch: ") != NULL;
    if (where->silent)
        return true;
    if (kind == TSR__FAULT_ALLOC)
        return continued || where->run == many_commands ||
               (where->run == create_kernel && strstr(log_text, "pipeline cache"));
    for (size_t i = 0; i < sizeof slab / sizeof *slab; i++)
        if (code == VK_ERROR_OUT_OF_DEVICE_MEMORY && strcmp(site, slab[i]) == 0)
            return true;
    if (strcmp(site, "vkGetSemaphoreCounterValue") == 0)
        return true;
    if (where->run == list_devices && not_usable_then(code, site))
        return true;
    return continued && is_of_next_batch(site);
}

static void judge(tsr__fault_kind kind, int code, const char *site, const step *where,
                  tsr_status status)
{
    const char *text = tsr_last_error();
    const char *words = kind == TSR__FAULT_ALLOC ? "out of host memory" : site;
    if (status == TSR_OK) {
        ck_assert_msg(made_up_for(kind, code, site, where), "%s of %s in %s: no error",
                      code_name(kind, code), site, where->name);
        ck_assert_msg(strstr(log_text, words) || strstr(text, words),
                      "%s of %s in %s: neither logged nor recorded", code_name(kind, code), site,
                      where->name);
        return;
    }
    tsr_status wanted =
        kind == TSR__FAULT_ALLOC ? TSR_ERR_NO_MEMORY : tsr__vk_status((VkResult)code);
    if (where->run == open_device && kind == TSR__FAULT_VULKAN && not_usable_then(code, site))
        wanted = TSR_ERR_UNSUPPORTED;
    ck_assert_msg(status == wanted, "%s of %s in %s: status %s: %s", code_name(kind, code), site,
                  where->name, tsr_status_name(status), text);
    ck_assert_msg(strstr(text, words) || strstr(log_text, words),
                  "%s of %s in %s: the text does not name it: %s", code_name(kind, code), site,
                  where->name, text);
}

/* Checks that after a loss every call returns TSR_ERR_DEVICE_LOST, and that nothing crashes. */
static void check_lost(work *w)
{
    const int64_t shape[] = {4};
    tsr_tensor *tensor = (void *)&unwritten;
    tsr_stream *stream = (void *)&unwritten;
    if (!w->device || !w->stream || !w->a)
        return;
    GPU_FAILS(tsr_tensor_create(w->device, TSR_F32, 1, shape, &tensor), TSR_ERR_DEVICE_LOST,
              "lost");
    GPU_FAILS(tsr_stream_create(w->device, &stream), TSR_ERR_DEVICE_LOST, "lost");
    ck_assert_ptr_eq(tensor, (void *)&unwritten);
    ck_assert_ptr_eq(stream, (void *)&unwritten);
    GPU_FAILS(tsr_fill(w->stream, w->a, 1), TSR_ERR_DEVICE_LOST, "lost");
    GPU_FAILS(tsr_stream_submit(w->stream), TSR_ERR_DEVICE_LOST, "lost");
    GPU_FAILS(tsr_stream_wait(w->stream), TSR_ERR_DEVICE_LOST, "lost");
}

/* Runs `count` steps or until one fails. Returns the step in which the fault occurred, or NULL if
 * it has not occurred. */
static const step *run_steps(work *w, size_t count, tsr_status *status)
{
    const step *struck = NULL;
    for (size_t i = 0; i < count; i++) {
        bool before = tsr__fault_site() != NULL;
        *status = steps[i].run(w);
        if (!before && tsr__fault_site())
            struck = &steps[i];
        if (*status != TSR_OK)
            break;
    }
    return struck;
}

/* Runs of the workload with one failure each --------------------------------------------------- */

#define SITES_MAX 64
static const char *sites[SITES_MAX];
static int site_count;

static void note_site(const char *site)
{
    for (int i = 0; i < site_count; i++)
        if (strcmp(sites[i], site) == 0)
            return;
    ck_assert_int_lt(site_count, SITES_MAX);
    sites[site_count++] = site;
}

static bool site_seen(const char *site)
{
    for (int i = 0; i < site_count; i++)
        if (strcmp(sites[i], site) == 0)
            return true;
    return false;
}

static float expected[sizeof((work *)0)->results / sizeof(float)];

/* Computes the results without a failure. */
static void learn_expected(bool staged)
{
    work w = {.staged = staged};
    tsr_status status;
    tsr__fault_arm(TSR__FAULT_NONE, 0, 0);
    run_steps(&w, STEPS, &status);
    ck_assert_ok(status);
    memcpy(expected, w.results, sizeof expected);
    /* The sum of 300,000 uniform numbers shows that work was done. */
    ck_assert_float_gt(expected[ROWS * COLUMNS + ROWS], 149000);
    ck_assert_float_lt(expected[ROWS * COLUMNS + ROWS], 151000);
    close_all(&w);
}

/* Does the same work with the remaining objects. A failure in the steps that only create objects
 * cannot have changed results. In that case only those steps run again, with one operation that
 * shows that the stream works. */
static void check_recovery(work *w, const step *struck)
{
    const step *first_computing = &steps[BEFORE_COMPUTING];
    bool early = struck && struck < first_computing;
    tsr_status status;
    run_steps(w, early ? BEFORE_COMPUTING : STEPS, &status);
    ck_assert_msg(status == TSR_OK, "after a failure in %s: %s", struck ? struck->name : "nothing",
                  tsr_last_error());
    if (!early) {
        ck_assert_mem_eq(w->results, expected, sizeof expected);
        return;
    }
    float total = 0;
    ck_assert_ok(tsr_fill(w->stream, w->total, 3));
    ck_assert_ok(tsr_tensor_download(w->stream, w->total, &total, sizeof total));
    ck_assert_float_eq(total, 3);
}

/* Does the work with the fault that is armed. Returns false if the fault does not occur. */
static bool fail_armed(tsr__fault_kind kind, int code, bool staged)
{
    work w = {.staged = staged};
    tsr_status status;
    log_text[0] = '\0';
    const step *struck = run_steps(&w, STEPS, &status);
    const char *site = tsr__fault_site();
    tsr__fault_disarm();
    if (site) {
        note_site(site);
        ck_assert_ptr_nonnull(struck);
        judge(kind, code, site, struck, status);
    } else {
        ck_assert_ok(status);
    }
    if (w.device && atomic_load(&w.device->lost))
        check_lost(&w);
    else
        check_recovery(&w, struck);
    close_all(&w);
    return site != NULL;
}

/* Does the work while the nth event fails. Returns false if there is no such event. */
static bool fail_nth(tsr__fault_kind kind, uint64_t nth, int code, bool staged)
{
    tsr__fault_arm(kind, nth, code);
    return fail_armed(kind, code, staged);
}

/* Validation layers check every argument of every call, which takes long. All other GPU tests run
 * with them. */
static bool layers_wanted, fast_driver;

static void prepare(void)
{
    const char *value = getenv("TESSERA_VALIDATION");
    const char *driver = getenv("VK_DRIVER_FILES");
    layers_wanted = value && strcmp(value, "0") != 0;
    fast_driver = driver && strstr(driver, "lvp_icd");
    setenv("TESSERA_VALIDATION", "0", 1);
}

/* Makes each function in vk.h fail that has not failed yet. The number of calls depends on how
 * often the device is found busy. So the nth call may be another one in each run, and some calls
 * may never have been the nth. Functions are left out if they need layers, are called only on
 * closing, or need a device with a certain feature. */
static void fail_unseen(void)
{
    static const char *const listed[] = {
#define X(name) "vk" #name,
#include "vk_results.inc"
#undef X
    };
    static const char *const elsewhere[] = {
        "vkCreateDebugUtilsMessengerEXT",     /* layers_fail */
        "vkEnumerateInstanceLayerProperties", /* layers_fail */
        "vkDeviceWaitIdle",                   /* closing_a_lost_device_fails */
        "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
        "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV",
        "vkGetPipelineExecutableStatisticsKHR",
    };
    const int code = VK_ERROR_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        bool excused = site_seen(listed[i]);
        for (size_t j = 0; j < sizeof elsewhere / sizeof *elsewhere; j++)
            excused = excused || strcmp(listed[i], elsewhere[j]) == 0;
        if (excused)
            continue;
        tsr__fault_arm_at(TSR__FAULT_VULKAN, listed[i], code);
        ck_assert_msg(fail_armed(TSR__FAULT_VULKAN, code, true), "%s was never called", listed[i]);
    }
}

/* Returns true if the nth event must fail with this error code. Failing every event with every
 * code would take minutes, mostly for pipelines. Therefore each event gets one code, and on a
 * slow driver only every other event fails. TESSERA_FAULTS_ALL=1 selects all. */
static bool due(uint64_t nth, int code_index)
{
    if (getenv("TESSERA_FAULTS_ALL"))
        return true;
    return (fast_driver || nth % 2 == 0) && (nth + fast_driver) % 3 == (uint64_t)code_index;
}

/* Does not fail one call after the other first, so fail_unseen() has to make every function
 * fail. */
START_TEST(every_function_fails)
{
    if (!fast_driver)
        SKIP("this driver may lack what the workload uses, such as timers");
    tsr_log_set(on_log, NULL, TSR_LOG_WARNING);
    learn_expected(true);
    fail_unseen();
}
END_TEST

START_TEST(vulkan_calls_fail)
{
    static const int codes[] = {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY,
                                VK_ERROR_DEVICE_LOST};
    tsr_log_set(on_log, NULL, TSR_LOG_WARNING);
    learn_expected(true);
    bool more = true;
    for (uint64_t nth = 0; more; nth++)
        for (int i = 0; i < 3; i++)
            if (due(nth, i))
                more = fail_nth(TSR__FAULT_VULKAN, nth, codes[i], true) && more;
    if (fast_driver || getenv("TESSERA_FAULTS_ALL"))
        fail_unseen();
    else
        ck_assert_int_gt(site_count, 20);
}
END_TEST

#ifndef __has_feature /* only clang has it */
#define __has_feature(name) 0
#endif

/* From the nth event on, memory is exhausted, also while all objects are closed. Nothing that
 * failed may then be used or destroyed twice, and no memory may be freed that the device still
 * uses: sanitizers, malloc and the driver's threads find that. Once there is memory again, new
 * objects do the work. */
static bool exhaust_from(tsr__fault_kind kind, uint64_t nth, bool staged)
{
    work w = {.staged = staged}, again = {.staged = staged};
    tsr_status status;
    log_text[0] = '\0';
    tsr__fault_arm_from(kind, nth, VK_ERROR_OUT_OF_HOST_MEMORY);
    (void)run_steps(&w, STEPS, &status);
    const bool struck = tsr__fault_site() != NULL;
    if (struck && status == TSR_OK) /* only steps that log their failure came after it */
        ck_assert_str_ne(log_text, "");
    else
        ck_assert_int_eq(status, struck ? TSR_ERR_NO_MEMORY : TSR_OK);
    w.may_abandon = struck && kind == TSR__FAULT_VULKAN;
    close_all(&w);
    tsr__fault_disarm();
    if (struck && nth % 4 == 0) {
        run_steps(&again, STEPS, &status);
        ck_assert_ok(status);
        ck_assert_mem_eq(again.results, expected, sizeof expected);
        close_all(&again);
    }
    return struck;
}

START_TEST(memory_is_exhausted)
{
    static const tsr__fault_kind kinds[] = {TSR__FAULT_VULKAN, TSR__FAULT_ALLOC};
    if (!fast_driver)
        SKIP("this driver may lack what the workload uses, such as timers");
    if (__has_feature(address_sanitizer) && kinds[_i] == TSR__FAULT_VULKAN)
        SKIP("what the driver keeps for abandoned streams would be reported as leaked");
    const uint64_t stride = getenv("TESSERA_FAULTS_ALL") ? 1 : 3;
    uint64_t nth = 0;
    tsr_log_set(on_log, NULL, TSR_LOG_WARNING);
    learn_expected(_i == 0);
    while (exhaust_from(kinds[_i], nth, _i == 0))
        nth += stride;
    ck_assert_uint_gt(nth, 40);
}
END_TEST

/* Uses mapped memory, which needs fewer Vulkan calls but the same allocations as staging. */
START_TEST(allocations_fail)
{
    tsr_log_set(on_log, NULL, TSR_LOG_WARNING);
    learn_expected(false);
    uint64_t stride = fast_driver || getenv("TESSERA_FAULTS_ALL") ? 1 : 8;
    uint64_t nth = 0;
    while (fail_nth(TSR__FAULT_ALLOC, nth, 0, false))
        nth += stride;
    ck_assert_uint_gt(nth, 40);
}
END_TEST

/* Closing cannot report a failure, so it must log it and continue. */
START_TEST(closing_fails)
{
    static const int codes[] = {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST};
    tsr_log_set(on_log, NULL, TSR_LOG_WARNING);
    learn_expected(true);
    const char *site = "";
    for (uint64_t nth = 0; site; nth++) {
        work w = {.staged = true};
        tsr_status status;
        tsr__fault_arm(TSR__FAULT_NONE, 0, 0);
        run_steps(&w, STEPS, &status);
        ck_assert_ok(status);
        ck_assert_ok(tsr_fill(w.stream, w.total, 1)); /* destroying the stream waits for it */
        log_text[0] = '\0';
        tsr__fault_arm(TSR__FAULT_VULKAN, nth, codes[_i]);
        close_all(&w);
        site = tsr__fault_site();
        tsr__fault_disarm();
        ck_assert_msg(!site || strstr(log_text, site) || strstr(tsr_last_error(), site),
                      "%s is not in \"%s\"", site, log_text);
        ck_assert_msg(site || nth > 2, "closing makes %llu calls only", (unsigned long long)nth);
    }
}
END_TEST

/* The device is lost, and its driver cannot even wait until it is idle. */
START_TEST(closing_a_lost_device_fails)
{
    work w = {.staged = true};
    tsr_status status;
    tsr__fault_arm(TSR__FAULT_NONE, 0, 0);
    run_steps(&w, STEPS, &status);
    ck_assert_ok(status);
    ck_assert_ok(tsr_fill(w.stream, w.total, 1));
    tsr__fault_arm(TSR__FAULT_VULKAN, 0, VK_ERROR_DEVICE_LOST);
    ck_assert_int_eq(tsr_stream_submit(w.stream), TSR_ERR_DEVICE_LOST);
    check_lost(&w);
    tsr__fault_arm(TSR__FAULT_VULKAN, 0, VK_ERROR_DEVICE_LOST);
    close_all(&w);
    ck_assert_str_eq(tsr__fault_site(), "vkDeviceWaitIdle");
    tsr__fault_disarm();
}
END_TEST

/* Makes the calls fail that are made only with validation layers. */
START_TEST(layers_fail)
{
    if (!layers_wanted)
        return;
    setenv("TESSERA_VALIDATION", "1", 1);
    const tsr__fault_kind kinds[] = {TSR__FAULT_VULKAN, TSR__FAULT_ALLOC};
    const char *site = "";
    for (uint64_t nth = 0; site; nth++) {
        tsr_device_list *list = NULL;
        tsr__fault_arm(kinds[_i], nth, VK_ERROR_OUT_OF_HOST_MEMORY);
        tsr_status status = tsr_device_list_create(&list);
        site = tsr__fault_site();
        tsr__fault_disarm();
        ck_assert_int_eq(status, site ? TSR_ERR_NO_MEMORY : TSR_OK);
        if (site)
            note_site(site);
        else
            tsr_device_list_destroy(&list);
    }
    if (kinds[_i] == TSR__FAULT_VULKAN) {
        ck_assert(site_seen("vkCreateDebugUtilsMessengerEXT"));
        ck_assert(site_seen("vkEnumerateInstanceLayerProperties"));
    }
}
END_TEST

/* A batch that cannot be ended ----------------------------------------------------------------- */

/* After a batch was dropped, the next recording must keep alive the buffers that it uses, even
 * if the dropped batch had marked them as kept alive. */
START_TEST(dropped_batch_leaves_no_marks)
{
    const int64_t shape[] = {64};
    gpu_setup();
    tsr_tensor *t = gpu_new(TSR_F32, 1, shape);
    GPU_OK(tsr_fill(queue, t, 1));
    tsr__fault_arm(TSR__FAULT_VULKAN, 0, VK_ERROR_OUT_OF_HOST_MEMORY);
    GPU_FAILS(tsr_stream_submit(queue), TSR_ERR_NO_MEMORY, "1 recorded operations were dropped");
    tsr__fault_disarm();
    GPU_OK(tsr_fill(queue, t, 2));
    ck_assert_uint_eq(queue->open->held_count, 1);
    double got[64];
    gpu_get(t, got);
    ck_assert_double_eq(got[63], 2);
    tsr_tensor_destroy(&t);
    gpu_teardown();
}
END_TEST

/* Fills a batch while the nth call fails. If that call is the one that ends the batch, the error
 * must be returned at once, since no later call would have anything to wait for. Returns whether
 * it was that call. */
static bool dropped_full_batch_is_reported_at(uint64_t nth)
{
    const int64_t shape[] = {64};
    tsr_status status = TSR_OK;
    double got[64];
    gpu_setup();
    tsr_tensor *t = gpu_new(TSR_F32, 1, shape);
    GPU_OK(tsr_fill(queue, t, 1));
    GPU_OK(tsr_stream_wait(queue));
    GPU_OK(tsr_fill(queue, t, 2));
    tsr__fault_arm(TSR__FAULT_VULKAN, nth, VK_ERROR_OUT_OF_HOST_MEMORY);
    while (!tsr__fault_site())
        status = tsr_fill(queue, t, 3);
    tsr__fault_disarm();
    bool ending = strcmp(tsr__fault_site(), "vkEndCommandBuffer") == 0;
    if (ending) {
        GPU_FAILS(status, TSR_ERR_NO_MEMORY, "recorded operations were dropped");
        gpu_get(t, got);
        ck_assert_double_eq(got[63], 1);
    }
    tsr_tensor_destroy(&t);
    gpu_teardown();
    return ending;
}

START_TEST(dropped_full_batch_is_reported)
{
    uint64_t nth = 0;
    while (!dropped_full_batch_is_reported_at(nth))
        ck_assert_uint_lt(nth++, 20);
}
END_TEST

/* If the commands of a timer were dropped, reading the timer fails instead of blocking for ever. */
START_TEST(dropped_timer_is_gone)
{
    gpu_setup();
    if (tsr_device_get_info(gpu)->timestamp_period_ns > 0) {
        uint64_t ns;
        GPU_OK(tsr_stream_timer_begin(queue));
        GPU_OK(tsr_stream_timer_end(queue));
        tsr__fault_arm(TSR__FAULT_VULKAN, 0, VK_ERROR_OUT_OF_HOST_MEMORY);
        GPU_FAILS(tsr_stream_wait(queue), TSR_ERR_NO_MEMORY, "vkEndCommandBuffer");
        tsr__fault_disarm();
        GPU_FAILS(tsr_stream_timer_read(queue, &ns), TSR_ERR_INVALID,
                  "there is no stream_timer_end");
    }
    gpu_teardown();
}
END_TEST

/* Dropping a batch must still make later work wait for the other stream's work that the batch
 * would have waited for. */
START_TEST(dropped_batch_keeps_the_order_of_streams)
{
    const int64_t shape[] = {1 << 20};
    gpu_setup();
    tsr_stream *other = NULL;
    GPU_OK(tsr_stream_create(gpu, &other));
    tsr_tensor *t = gpu_new(TSR_F32, 1, shape);
    GPU_OK(tsr_random_uniform(other, t, 0, 1, tsr_random_params(.seed = 1)));
    GPU_OK(tsr_fill(queue, t, 1));
    tsr__fault_arm(TSR__FAULT_VULKAN, 0, VK_ERROR_OUT_OF_HOST_MEMORY);
    GPU_FAILS(tsr_stream_submit(queue), TSR_ERR_NO_MEMORY, "vkEndCommandBuffer");
    tsr__fault_disarm();
    uint64_t point = 0;
    bool reached = false;
    GPU_OK(tsr_stream_mark(other, &point));
    GPU_OK(tsr_stream_reached(other, point, &reached));
    ck_assert(reached);
    tsr_tensor_destroy(&t);
    tsr_stream_destroy(&other);
    gpu_teardown();
}
END_TEST

TESTS(faults)
{
    tcase_set_timeout(tests, 900);
    tcase_add_unchecked_fixture(tests, prepare, NULL);
    tcase_add_test(tests, every_function_fails);
    tcase_add_test(tests, vulkan_calls_fail);
    tcase_add_test(tests, allocations_fail);
    tcase_add_loop_test(tests, closing_fails, 0, 2);
    tcase_add_test(tests, closing_a_lost_device_fails);
    tcase_add_loop_test(tests, layers_fail, 0, 2);
    tcase_add_test(tests, dropped_batch_leaves_no_marks);
    tcase_add_test(tests, dropped_full_batch_is_reported);
    tcase_add_test(tests, dropped_timer_is_gone);
    tcase_add_test(tests, dropped_batch_keeps_the_order_of_streams);
}

TESTS(exhausted)
{
    tcase_set_timeout(tests, 900);
    tcase_add_unchecked_fixture(tests, prepare, NULL);
    tcase_add_loop_test(tests, memory_is_exhausted, 0, 2);
}
