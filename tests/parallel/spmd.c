#include "parallel/spmd.h"

#include <stdarg.h>
#include <unistd.h>

#include "gpu/device/device.h"
#include "gpu/device/instance.h"
#include "support/gpu.h"
#include "support/random.h"

#define MAX_CASES 250
#define TIMEOUT_NS UINT64_C(60000000000)
#define SMALL_PIECES 65536

tsr_comm *world;
tsr_group *group, *staged;
int my_rank, ranks = 1;

static struct {
    const char *name;
    case_fn run;
} cases[MAX_CASES];
static int case_count, current;
static char skipped[256];

void case_register(const char *name, case_fn run)
{
    if (case_count == MAX_CASES)
        exit(EXIT_FAILURE);
    cases[case_count].name = name;
    cases[case_count++].run = run;
}

void case_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    printf("not ok %d - %s\n", current + 1, cases[current].name);
    fflush(stdout);
    fprintf(stderr, "# rank %d of %d: %s:%d: ", my_rank, ranks, file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(EXIT_FAILURE);
}

void case_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(skipped, sizeof skipped, format, args);
    va_end(args);
}

/* Numbers ------------------------------------------------------------------------------------ */

double number(uint64_t sequence, int64_t index)
{
    uint64_t state = sequence * 0x100000001b3u + (uint64_t)index * 0x2545F4914F6CDD1Du;
    return (double)(int64_t)(random_next(&state) >> 11) * 0x1p-52 - 1;
}

double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    CHECK(values, "no memory");
    return values;
}

double *numbers(uint64_t sequence, int64_t count, tsr_dtype dtype)
{
    double *values = doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(number(sequence, i), dtype);
    return values;
}

int64_t count_of(int ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    return count;
}

tsr_tensor *tensor_new(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = NULL;
    OK(tsr_tensor_create(gpu, dtype, ndim, shape, &tensor));
    return tensor;
}

void tensor_put(tsr_tensor *tensor, const double *values)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    int64_t count = tsr_layout_count(layout);
    uint64_t size_bytes = (uint64_t)count * tsr_dtype_size(layout->dtype);
    uint8_t *data = malloc(size_bytes + 1);
    CHECK(data, "no memory");
    for (int64_t i = 0; i < count; i++)
        gpu_store_bits(data, i, layout->dtype, gpu_bits(values[i], layout->dtype));
    OK(tsr_tensor_upload(queue, tensor, data, size_bytes));
    free(data);
}

tsr_tensor *tensor_of(tsr_dtype dtype, int ndim, const int64_t *shape, const double *values)
{
    tsr_tensor *tensor = tensor_new(dtype, ndim, shape);
    tensor_put(tensor, values);
    return tensor;
}

uint8_t *bytes_of(const tsr_tensor *tensor, uint64_t *size_bytes)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    *size_bytes = (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype);
    uint8_t *data = malloc(*size_bytes + 1);
    CHECK(data, "no memory");
    OK(tsr_tensor_download(queue, tensor, data, *size_bytes));
    return data;
}

double *values_of(const tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    uint64_t size_bytes;
    uint8_t *data = bytes_of(tensor, &size_bytes);
    double *values = doubles(tsr_layout_count(layout));
    for (int64_t i = 0; i < tsr_layout_count(layout); i++)
        values[i] = gpu_value(gpu_load_bits(data, i, layout->dtype), layout->dtype);
    free(data);
    return values;
}

tsr_tensor *tensor_with_gaps(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t larger[TSR_MAX_DIMS] = {0};
    tsr_tensor *view, *next;
    for (int d = 0; d < ndim; d++)
        larger[d] = 2 * shape[d] + 3;
    view = tensor_new(dtype, ndim, larger);
    for (int d = 0; d < ndim; d++) {
        OK(tsr_tensor_slice(view, d, 1, 1 + 2 * shape[d], 2, &next));
        tsr_tensor_destroy(&view);
        view = next;
    }
    return view;
}

double *slice_of(const double *values, int ndim, const int64_t *shape, int dim, int64_t start,
                 int64_t count)
{
    int64_t outer = count_of(dim, shape), inner = count_of(ndim - dim - 1, shape + dim + 1);
    double *out = doubles(outer * count * inner);
    for (int64_t o = 0; o < outer; o++)
        memcpy(out + o * count * inner, values + (o * shape[dim] + start) * inner,
               (size_t)(count * inner) * sizeof *out);
    return out;
}

void check_close(const char *what, const double *got, const double *want, const double *magnitude,
                 int64_t count, double tolerance)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= tolerance * magnitude[i] + 1e-30,
              "%s: element %lld is %.9g, not %.9g ± %.2g", what, (long long)i, got[i], want[i],
              tolerance * magnitude[i]);
}

double tolerance_of(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 3e-6 : dtype == TSR_F16 ? 1.5e-3 : 1.2e-2;
}

/* Running ------------------------------------------------------------------------------------ */

static bool launched(void)
{
    return getenv("WORLD_SIZE") != NULL;
}

static void open_all(void)
{
    if (launched()) {
        OK(tsr_comm_create(tsr_comm_params(.timeout_ns = TIMEOUT_NS), &world));
        my_rank = tsr_comm_rank(world);
        ranks = tsr_comm_size(world);
    }
    /* TEST_DISCRETE selects the ranks whose device cannot map tensors, like a discrete GPU: "all",
     * or "odd" ranks. */
    const char *discrete = getenv("TEST_DISCRETE");
    bool maps = !discrete || strcmp(discrete, "none") == 0 ||
                (strcmp(discrete, "odd") == 0 && my_rank % 2 == 0);
    OK(tsr_device_open(tsr_device_params(.force_staging = !maps), &gpu));
    if (getenv("TEST_AS_GPU")) { /* run by hand, with the kernels that are chosen for GPUs */
        gpu->host_copies = false;
        tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    }
    OK(tsr_stream_create(gpu, &queue));
    OK(tsr_group_create(world, queue, NULL, &group));
    OK(tsr_group_create(world, queue,
                        tsr_group_params(.force_staging = true, .piece_bytes = SMALL_PIECES),
                        &staged));
    tsr_group_set_default(group);
}

static void close_all(void)
{
    tsr_group_destroy(&staged);
    tsr_group_destroy(&group);
    tsr_comm_destroy(&world);
    tsr_stream_destroy(&queue);
    uint64_t used_bytes = 0;
    tsr_device_memory_usage(gpu, NULL, &used_bytes);
    tsr_device_close(&gpu);
    current = case_count - 1;
    CHECK(used_bytes == 0, "%llu bytes of device memory are still in use",
          (unsigned long long)used_bytes);
    CHECK(tsr__validation_messages() == 0, "%llu validation messages",
          (unsigned long long)tsr__validation_messages());
}

/* Waits until all ranks have passed the case. */
static void meet(void)
{
    if (world)
        OK(tsr_comm_barrier(world, NULL));
}

bool went_on;

static void note_full_batch(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    (void)level;
    went_on = went_on || strstr(message, "submitting a batch: out of host memory") != NULL;
}

void watch_full_batches(bool on)
{
    tsr_log_set(on ? note_full_batch : NULL, NULL, TSR_LOG_WARNING);
}

/* Selects cases by their names. With arguments TEXT, selects only the cases that contain one of
 * them. With arguments -TEXT, selects none that contains one of them. */
static bool is_selected(const char *name, int argc, char **argv)
{
    bool chosen = false, choice = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && strstr(name, argv[i] + 1))
            return false;
        if (argv[i][0] != '-') {
            choice = true;
            chosen = chosen || strstr(name, argv[i]);
        }
    }
    return chosen || !choice;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_all();
    int number_printed = 0;
    for (current = 0; current < case_count; current++) {
        if (!is_selected(cases[current].name, argc, argv))
            continue;
        skipped[0] = '\0';
        cases[current].run();
        OK(tsr_stream_wait(queue));
        meet();
        if (my_rank == 0)
            printf("ok %d - %s%s%s\n", ++number_printed, cases[current].name,
                   skipped[0] ? " # SKIP " : "", skipped);
    }
    close_all();
    if (my_rank == 0)
        printf("1..%d\n", number_printed);
    return EXIT_SUCCESS;
}
