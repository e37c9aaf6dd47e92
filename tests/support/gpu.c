/* The device under test, and conversions of tensors from and to doubles. */
#include "support/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "gpu/device/instance.h"
#include "gpu/stream/stream.h"
#include "support/at_end.h"
#include "support/gpu_libraries.h"
#include "support/random.h"

tsr_device *gpu;
tsr_stream *queue;

void gpu_ok_(tsr_status status, const char *text, const char *file, int line)
{
    if (status != TSR_OK)
        ck_abort_msg("%s:%d: %s: %s: %s", file, line, text, tsr_status_name(status),
                     tsr_last_error());
}

void gpu_fails_(tsr_status got, tsr_status want, const char *words, const char *text,
                const char *file, int line)
{
    if (got != want)
        ck_abort_msg("%s:%d: %s: expected %s, got %s: %s", file, line, text, tsr_status_name(want),
                     tsr_status_name(got), got == TSR_OK ? "no error" : tsr_last_error());
    if (!strstr(tsr_last_error(), words))
        ck_abort_msg("%s:%d: %s: expected \"%s\" in the error text \"%s\"", file, line, text, words,
                     tsr_last_error());
}

__attribute__((constructor)) static void before_all_tests(void)
{
    gpu_load_libraries();
}

/* With TEST_ONE_DEVICE and CK_FORK=no, consecutive tests that want the same kind of device share
 * one, with the pipelines that it has built. Each test finds the settings that the device had when
 * it was opened. If a test leaves memory in use or causes validation messages, the next test opens
 * another device. */
enum { PACKED = 1, STAGED = 2, AS_GPU = 4, NOT_SHARED = 8 };
static struct {
    int kind;
    tsr_device *device;
    tsr_device_info info;
    bool host_copies, long_code;
    tsr__device_class device_class;
    tsr__subnormals subnormals;
    double work_limit;
} shared;
static uint64_t seen_messages; /* messages for which earlier tests have failed */

static void close_shared_device(void)
{
    tsr_device_close(&shared.device);
}

/* Runs at the end of a program that shares devices. Closing the last device must not cause
 * validation messages either. */
static void end_of_program(void)
{
    close_shared_device();
    if (tsr__validation_messages() != seen_messages) {
        fprintf(stderr, "%llu validation messages while a device was closed\n",
                (unsigned long long)(tsr__validation_messages() - seen_messages));
        fflush(NULL);
        _exit(EXIT_FAILURE);
    }
}

static void keep_device(int kind)
{
    tests_at_end = end_of_program;
    shared.kind = kind;
    shared.device = gpu;
    shared.info = gpu->info;
    shared.host_copies = gpu->host_copies;
    shared.long_code = gpu->long_code;
    shared.device_class = gpu->traits.device_class;
    shared.subnormals = gpu->subnormals;
    shared.work_limit = gpu->work_limit;
}

/* Opens or shares a device. `kind` is a sum of the constants above. */
static void open_device(int kind)
{
    if (shared.device && shared.kind != kind)
        close_shared_device();
    if (shared.device) {
        gpu = shared.device;
        gpu->info = shared.info;
        gpu->host_copies = shared.host_copies;
        gpu->long_code = shared.long_code;
        tsr__device_treat_as(gpu, shared.device_class);
        gpu->subnormals = shared.subnormals;
        gpu->work_limit = shared.work_limit;
    } else {
        GPU_OK(tsr_device_open(tsr_device_params(.force_packed_storage = (kind & PACKED) != 0,
                                                 .force_staging = (kind & STAGED) != 0),
                               &gpu));
        if (kind & (PACKED | AS_GPU))
            gpu->host_copies = false;
        if (kind & AS_GPU)
            tsr__device_treat_as(gpu, TSR__CLASS_GPU);
        if (getenv("TEST_ONE_DEVICE") && !(kind & NOT_SHARED))
            keep_device(kind);
    }
    GPU_OK(tsr_stream_create(gpu, &queue));
}

void gpu_setup(void)
{
    open_device(0);
}

void gpu_setup_not_shared(void)
{
    open_device(NOT_SHARED);
}

void gpu_setup_by_device(void)
{
    open_device(0);
    gpu->host_copies = false;
}

void gpu_setup_packed(void)
{
    open_device(PACKED);
}

void gpu_setup_staged(void)
{
    open_device(STAGED);
}

void gpu_setup_as_gpu(void)
{
    open_device(AS_GPU);
}

void gpu_setup_as_gpu_packed(void)
{
    open_device(AS_GPU | PACKED);
}

bool gpu_is_swiftshader(void)
{
    return strcmp(tsr_device_get_info(gpu)->driver_name, "SwiftShader driver") == 0;
}

void gpu_teardown(void)
{
    tsr_stream_destroy(&queue);
    uint64_t used_bytes = 0;
    tsr_device_memory_usage(gpu, NULL, &used_bytes);
    uint64_t messages = tsr__validation_messages() - seen_messages;
    if (gpu != shared.device)
        tsr_device_close(&gpu);
    else if (used_bytes != 0 || messages != 0)
        close_shared_device();
    gpu = NULL;
    messages = tsr__validation_messages() - seen_messages;
    seen_messages += messages;
    if (used_bytes != 0)
        ck_abort_msg("%llu bytes of device memory are still in use",
                     (unsigned long long)used_bytes);
    if (messages != 0)
        ck_abort_msg("%llu validation messages", (unsigned long long)messages);
}

tsr_tensor *gpu_new(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = NULL;
    GPU_OK(tsr_tensor_create(gpu, dtype, ndim, shape, &tensor));
    return tensor;
}

tsr_tensor *gpu_as(const tsr_tensor *tensor, tsr_dtype dtype)
{
    tsr_layout layout = *tsr_tensor_layout(tensor);
    tsr_tensor *view = NULL;
    layout.dtype = dtype;
    GPU_OK(tsr_tensor_view(tensor, &layout, &view));
    return view;
}

void gpu_poison(tsr_tensor *tensor)
{
    tsr__access whole = tsr__write_buffer(tensor->buffer);
    whole.end_bytes = tsr__align_up_u64(whole.end_bytes, 4);
    if (whole.end_bytes > 0)
        GPU_OK(tsr__stream_fill(queue, whole, UINT32_MAX));
}

/* Rounds x once to a binary format with `precision` significant bits, the smallest normal number
 * 2^min_exponent, and the largest exponent max_exponent. */
static double round_to(double x, int precision, int min_exponent, int max_exponent)
{
    if (!isfinite(x) || x == 0)
        return x;
    int exponent;
    frexp(x, &exponent);
    exponent -= 1;
    if (exponent < min_exponent)
        exponent = min_exponent;
    double rounded = ldexp(rint(ldexp(x, precision - 1 - exponent)), exponent - precision + 1);
    return fabs(rounded) >= ldexp(1.0, max_exponent + 1) ? copysign(INFINITY, x) : rounded;
}

static double truncate_to(double x, double low, double high)
{
    if (isnan(x))
        return 0;
    return x <= low ? low : x >= high ? high : trunc(x);
}

double gpu_rounded(double x, tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F32:
        return round_to(x, 24, -126, 127);
    case TSR_F16:
        return round_to(x, 11, -14, 15);
    case TSR_BF16:
        return round_to(x, 8, -126, 127);
    case TSR_I32:
        return truncate_to(x, INT32_MIN, INT32_MAX);
    case TSR_U32:
        return truncate_to(x, 0, UINT32_MAX);
    case TSR_I64:
        return truncate_to(x, -0x1p63, 0x1p63);
    case TSR_U8:
        return truncate_to(x, 0, UINT8_MAX);
    default:
        break;
    }
    ck_abort_msg("%d is no dtype", (int)dtype);
    return 0;
}

/* Returns the 16 bits of a value that the format represents exactly. */
static uint64_t half_bits(double x, int mantissa_bits, int bias)
{
    uint64_t sign = signbit(x) ? 0x8000u : 0;
    uint64_t infinity = 0x7fffu & ~((1u << mantissa_bits) - 1u);
    if (isnan(x))
        return sign | infinity | (1u << (mantissa_bits - 1));
    if (isinf(x))
        return sign | infinity;
    int exponent;
    if (x == 0)
        return sign;
    frexp(x, &exponent);
    exponent += bias - 1;
    if (exponent < 1) /* a subnormal number is a multiple of the smallest value */
        return sign | (uint64_t)ldexp(fabs(x), mantissa_bits + bias - 1);
    uint64_t mantissa = (uint64_t)ldexp(fabs(x), mantissa_bits + bias - exponent);
    return sign | ((uint64_t)exponent << mantissa_bits) | (mantissa - (1u << mantissa_bits));
}

static double half_value(uint64_t bits, int mantissa_bits, int bias)
{
    double sign = bits & 0x8000u ? -1 : 1;
    int exponent = (int)((bits & 0x7fffu) >> mantissa_bits);
    double mantissa = (double)(bits & ((1u << mantissa_bits) - 1u));
    if (exponent == 0x7fff >> mantissa_bits)
        return mantissa == 0 ? sign * INFINITY : NAN;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + ldexp(1.0, mantissa_bits), exponent - bias - mantissa_bits);
}

uint64_t gpu_bits(double x, tsr_dtype dtype)
{
    x = gpu_rounded(x, dtype);
    switch (dtype) {
    case TSR_F32: {
        float value = (float)x;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    case TSR_F16:
        return half_bits(x, 10, 15);
    case TSR_BF16:
        return half_bits(x, 7, 127);
    case TSR_I32:
        return (uint32_t)(int32_t)x;
    case TSR_I64:
        return x >= 0x1p63 ? (uint64_t)INT64_MAX : (uint64_t)(int64_t)x;
    case TSR_U32:
    case TSR_U8:
    default:
        break;
    }
    return (uint64_t)x;
}

double gpu_value(uint64_t bits, tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F32: {
        uint32_t word = (uint32_t)bits;
        float value;
        memcpy(&value, &word, sizeof value);
        return (double)value;
    }
    case TSR_F16:
        return half_value(bits, 10, 15);
    case TSR_BF16:
        return half_value(bits, 7, 127);
    case TSR_I32:
        return (double)(int32_t)(uint32_t)bits;
    case TSR_I64:
        return (double)(int64_t)bits;
    case TSR_U32:
        return (double)(uint32_t)bits;
    case TSR_U8:
        return (double)(uint8_t)bits;
    default:
        break;
    }
    ck_abort_msg("%d is no dtype", (int)dtype);
    return 0;
}

uint64_t gpu_load_bits(const void *data, int64_t index, tsr_dtype dtype)
{
    uint64_t bits = 0;
    size_t size = tsr_dtype_size(dtype);
    memcpy(&bits, (const char *)data + (size_t)index * size,
           size); /* elements are little-endian, as in Vulkan */
    return bits;
}

void gpu_store_bits(void *data, int64_t index, tsr_dtype dtype, uint64_t bits)
{
    size_t size = tsr_dtype_size(dtype);
    memcpy((char *)data + (size_t)index * size, &bits, size);
}

static void *elements_alloc(const tsr_tensor *tensor, uint64_t *size_bytes)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    *size_bytes = (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype);
    void *data = malloc(*size_bytes + 1);
    ck_assert_ptr_nonnull(data);
    return data;
}

void gpu_put(tsr_tensor *tensor, const double *values)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    uint64_t size_bytes;
    void *data = elements_alloc(tensor, &size_bytes);
    for (int64_t i = 0; i < tsr_layout_count(layout); i++)
        gpu_store_bits(data, i, layout->dtype, gpu_bits(values[i], layout->dtype));
    GPU_OK(tsr_tensor_upload(queue, tensor, data, size_bytes));
    free(data);
}

void gpu_get(tsr_tensor *tensor, double *values)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    uint64_t size_bytes;
    void *data = elements_alloc(tensor, &size_bytes);
    GPU_OK(tsr_tensor_download(queue, tensor, data, size_bytes));
    for (int64_t i = 0; i < tsr_layout_count(layout); i++)
        values[i] = gpu_value(gpu_load_bits(data, i, layout->dtype), layout->dtype);
    free(data);
}

uint64_t gpu_random_u64(gpu_random *random)
{
    return random_next(&random->state);
}

int64_t gpu_random_between(gpu_random *random, int64_t low, int64_t high)
{
    return random_between(&random->state, low, high);
}

double gpu_random_unit(gpu_random *random)
{
    return (double)(int64_t)(random_next(&random->state) >> 11) * 0x1p-52 - 1;
}

/* Makes a contiguous view somewhere inside a longer row of elements. */
static tsr_tensor *contiguous_view(gpu_random *random, tsr_dtype dtype, int ndim,
                                   const int64_t *shape, tsr_layout *view)
{
    GPU_OK(tsr_layout_init(dtype, ndim, shape, view));
    view->offset = gpu_random_between(random, 0, 1) * gpu_random_between(random, 0, 9);
    int64_t length = view->offset + tsr_layout_count(view) + gpu_random_between(random, 0, 3);
    return gpu_new(dtype, 1, &length);
}

/* Makes a view of a box in a larger tensor. Some dimensions have only every step-th element, and
 * the dimensions are in any order. */
static tsr_tensor *strided_view(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                                tsr_layout *view)
{
    int order[TSR_MAX_DIMS]; /* view dimension i is parent dimension order[i] */
    for (int i = 0; i < ndim; i++)
        order[i] = i;
    for (int i = ndim - 1; i > 0; i--) {
        int j = (int)gpu_random_between(random, 0, gpu_random_between(random, 0, 1) ? i : 0);
        int swap = order[i];
        order[i] = order[i - j];
        order[i - j] = swap;
    }

    int64_t parent_shape[TSR_MAX_DIMS];
    int64_t start[TSR_MAX_DIMS], stop[TSR_MAX_DIMS], step[TSR_MAX_DIMS];
    int64_t growth = 1; /* how many times larger the parent is; bounded */
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        bool grow = growth <= 8 && gpu_random_between(random, 0, 2) > 0;
        step[d] = grow ? gpu_random_between(random, 1, 3) : 1;
        start[d] = grow ? gpu_random_between(random, 0, 2) : 0;
        stop[d] = start[d] + (shape[i] > 0 ? (shape[i] - 1) * step[d] + 1 : 0);
        parent_shape[d] = stop[d] + (grow ? gpu_random_between(random, 0, 2) : 0);
        growth *= shape[i] > 0 ? (parent_shape[d] + shape[i] - 1) / shape[i] : 1;
    }

    tsr_tensor *parent = gpu_new(dtype, ndim, parent_shape);
    *view = *tsr_tensor_layout(parent);
    for (int d = 0; d < ndim; d++)
        GPU_OK(tsr_layout_slice(view, d, start[d], stop[d], step[d], view));
    if (ndim > 0)
        GPU_OK(tsr_layout_permute(view, order, view));
    return parent;
}

tsr_tensor *gpu_pitched_view(tsr_dtype dtype, int ndim, const int64_t *shape, tsr_tensor **parent)
{
    int64_t whole[TSR_MAX_DIMS];
    tsr_tensor *view = NULL;
    memcpy(whole, shape, (size_t)ndim * sizeof *whole);
    whole[ndim - 1] = (shape[ndim - 1] + 7) / 8 * 8;
    *parent = gpu_new(dtype, ndim, whole);
    gpu_poison(*parent);
    GPU_OK(tsr_tensor_slice(*parent, ndim - 1, 0, shape[ndim - 1], 1, &view));
    return view;
}

tsr_tensor *gpu_random_view(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                            tsr_tensor **parent)
{
    tsr_layout layout;
    *parent = gpu_random_between(random, 0, 2) == 0
                  ? contiguous_view(random, dtype, ndim, shape, &layout)
                  : strided_view(random, dtype, ndim, shape, &layout);
    gpu_poison(*parent);

    tsr_tensor *view = NULL;
    GPU_OK(tsr_tensor_view(*parent, &layout, &view));
    return view;
}
