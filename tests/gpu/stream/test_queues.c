/* Devices with a second queue for transfers, and with memory that the host can only write. The
 * driver of driver/driver.h gives the driver under test these properties. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fault.h"
#include "driver/driver.h"
#include "gpu/device/transfer_queue.h"
#include "gpu/memory/slabs.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"

enum { COMPUTE, TRANSFER, FAMILIES };

static test_driver_hold_fn *hold_family;
static unsigned family_of[FAMILIES]; /* the queue family of each queue */

static void hold(int queue_kind, bool is_held)
{
    hold_family(family_of[queue_kind], is_held);
}

static bool memory_is_direct(void)
{
    return strcmp(getenv("TEST_DRIVER_DIRECT"), "1") == 0;
}

static void setup(void)
{
    gpu_setup();
    void *driver = dlopen(getenv("TEST_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    ck_assert_msg(driver != NULL, "the driver is not loaded: %s", dlerror());
    void *symbol = dlsym(driver, "test_driver_hold");
    memcpy(&hold_family, &symbol, sizeof symbol);
    dlclose(driver);
    family_of[COMPUTE] = (unsigned)gpu->facts.compute_queue_family;
    family_of[TRANSFER] = (unsigned)gpu->facts.transfer_queue_family;
}

/* Like setup, but the host can write no device memory, so that all transfers use the queues. */
static void setup_staged(void)
{
    setup();
    gpu->wants_direct_uploads = false;
    tsr_stream_destroy(&queue);
    tsr__attachments_destroy(gpu);
    tsr__attachments_init(&gpu->attachments);
    GPU_OK(tsr_stream_create(gpu, &queue));
}

/* The number of f32 elements of a transfer of several pieces, and of the smallest transfer that
 * uses the other queue. */
static const int64_t large = (4 << 20) / 4 + 1, medium = (256 << 10) / 4;

static float *counting(int64_t count, float first)
{
    float *values = malloc((size_t)count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = first + (float)(i % 1000);
    return values;
}

static void put(tsr_stream *stream, tsr_tensor *tensor, float first)
{
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    float *values = counting(count, first);
    GPU_OK(tsr_tensor_upload(stream, tensor, values, (uint64_t)count * sizeof *values));
    free(values);
}

static void check_is(tsr_stream *stream, tsr_tensor *tensor, float first)
{
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    float *want = counting(count, first), *got = malloc((size_t)count * sizeof *got);
    GPU_OK(tsr_tensor_download(stream, tensor, got, (uint64_t)count * sizeof *got));
    ck_assert_int_eq(memcmp(want, got, (size_t)count * sizeof *got), 0);
    free(want);
    free(got);
}

/* The choice of queues and of memory --------------------------------------------------------- */

START_TEST(families_are_chosen_by_what_they_can_do)
{
    enum { G = VK_QUEUE_GRAPHICS_BIT, C = VK_QUEUE_COMPUTE_BIT, T = VK_QUEUE_TRANSFER_BIT };
    enum { S = VK_QUEUE_SPARSE_BINDING_BIT, VIDEO = 0x20, NONE = -1 };
    static const struct {
        int compute, want;
        VkQueueFlags flags[5];
    } cases[] = {
        {0, NONE, {G | C | T}},
        {2, 1, {G | C | T | S, T | S, C | T | S, VIDEO | T | S}}, /* NVIDIA */
        {1, 0, {G | C | T | S, C | T | S, VIDEO, S}},             /* RADV */
        {1, 3, {G | C | T | S, C | T | S, VIDEO | T, T}},
        {0, 2, {C | T, G | C | T, C | T}},
        {0, NONE, {G | C | T, VIDEO | T, G, S}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        VkQueueFamilyProperties2 families[6] = {0};
        uint32_t count = 0;
        for (; count < 5 && cases[i].flags[count]; count++)
            families[count].queueFamilyProperties =
                (VkQueueFamilyProperties){.queueFlags = cases[i].flags[count], .queueCount = 1};
        /* the best family has no queues */
        families[count++].queueFamilyProperties.queueFlags = T;
        ck_assert_int_eq((int)tsr__transfer_family(families, count, (uint32_t)cases[i].compute),
                         cases[i].want);
    }
}
END_TEST

START_TEST(memory_is_written_directly_only_if_the_host_reaches_all_of_it)
{
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                       VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkDeviceSize gib = (VkDeviceSize)1 << 30;
    VkPhysicalDeviceMemoryProperties memory = {
        .memoryTypeCount = 4,
        .memoryTypes = {{local, 0}, {host, 1}, {local | host, 2}, {local | host, 0}},
        .memoryHeapCount = 3,
        .memoryHeaps = {{8 * gib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                        {64 * gib, 0},
                        {gib / 4, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
    };
    ck_assert_uint_eq(tsr__transfer_direct_type(&memory, UINT32_MAX), 3);
    ck_assert_uint_eq(tsr__transfer_direct_type(&memory, 7), UINT32_MAX);
    memory.memoryTypes[3].propertyFlags |= VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;
    ck_assert_uint_eq(tsr__transfer_direct_type(&memory, UINT32_MAX), UINT32_MAX);
    memory.memoryTypes[3].propertyFlags = local | host;
    memory.memoryHeaps[0].size = gib / 4; /* the host can write all memory of a small GPU */
    ck_assert_uint_eq(tsr__transfer_direct_type(&memory, UINT32_MAX), UINT32_MAX);
    memory.memoryHeaps[0].size = gib / 2;
    memory.memoryHeaps[2].size = gib; /* … and so is this, while another heap is larger */
    ck_assert_uint_eq(tsr__transfer_direct_type(&memory, UINT32_MAX), 2);
}
END_TEST

START_TEST(the_device_says_which_it_uses)
{
    const tsr_device_info *info = tsr_device_get_info(gpu);
    const bool computes = strcmp(getenv("TEST_DRIVER_SECOND"), "compute") == 0;
    ck_assert_int_eq(info->type, TSR_DEVICE_DISCRETE);
    ck_assert_int_eq(gpu->facts.queue_family_count, 2);
    /* A family without graphics is better for computing. */
    ck_assert_int_eq(gpu->facts.compute_queue_family, computes ? 1 : 0);
    ck_assert_int_eq(gpu->facts.transfer_queue_family, computes ? 0 : 1);
    ck_assert(info->direct_uploads == memory_is_direct());
    ck_assert(!info->unified_memory);
    ck_assert_uint_eq(gpu->staging_chunk_bytes * TSR__STAGING_CHUNKS, 64 << 20);
}
END_TEST

START_TEST(one_queue_on_request)
{
    tsr_device *device;
    tsr_stream *stream;
    tsr_tensor *tensor;
    setenv("TESSERA_TRANSFER_QUEUE", "0", 1);
    GPU_OK(tsr_device_open(tsr_device_params(.force_staging = true), &device));
    unsetenv("TESSERA_TRANSFER_QUEUE");
    ck_assert_int_eq(device->facts.transfer_queue_family, -1);
    GPU_OK(tsr_stream_create(device, &stream));
    GPU_OK(tsr_tensor_create(device, TSR_F32, 1, &large, &tensor));
    ck_assert_ptr_null(tensor->buffer->direct);
    put(stream, tensor, 1);
    check_is(stream, tensor, 1);
    ck_assert_ptr_null(stream->transfers);
    ck_assert_uint_eq(stream->upload.chunk_bytes, 16 << 20);
    tsr_tensor_destroy(&tensor);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}
END_TEST

/* The order of transfers and other work ------------------------------------------------------ */

START_TEST(small_transfers_stay_on_their_queue)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, (int64_t[]){1000});
    const uint64_t unused = queue->transfers->timeline->submitted;
    put(queue, x, 3);
    check_is(queue, x, 3);
    ck_assert_uint_eq(queue->transfers->timeline->submitted, unused);
    ck_assert_uint_eq(queue->upload.chunk_bytes, 1 << 20);
    tsr_tensor_destroy(&x);
}
END_TEST

/* While the transfer queue does not run at all, the compute queue does. Work that does not depend
 * on the upload is complete, and no other work is. */
START_TEST(work_goes_on_during_an_upload)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &large), *y = gpu_new(TSR_F32, 1, &large),
               *z = gpu_new(TSR_F32, 1, (int64_t[]){1000});
    uint64_t before, after, other, sum;
    bool reached;
    GPU_OK(tsr_fill(queue, z, 1));
    GPU_OK(tsr_stream_mark(queue, &before));
    GPU_OK(tsr_stream_wait_point(queue, before, UINT64_MAX));
    hold(TRANSFER, true);
    GPU_OK(tsr_stream_mark(queue, &before));
    put(queue, x, 5);
    GPU_OK(tsr_stream_mark(queue, &after));
    GPU_OK(tsr_stream_reached(queue, after, &reached));
    ck_assert(!reached);
    GPU_FAILS(tsr_stream_wait_point(queue, after, 1000000), TSR_ERR_TIMEOUT, "still running");
    GPU_FAILS(tsr_stream_wait_point(queue, UINT64_MAX, 1000000), TSR_ERR_TIMEOUT, "still running");

    /* This work does not wait for the upload. */
    float *values = counting(1000, 0), got[1000];
    tsr_stream *second;
    GPU_OK(tsr_stream_create(gpu, &second));
    GPU_OK(tsr_scale(queue, z, z, 3, 1));
    GPU_OK(tsr_stream_mark(queue, &other));
    GPU_OK(tsr_tensor_download(second, z, got, sizeof got));
    ck_assert(got[999] == 4);
    GPU_OK(tsr_tensor_download(queue, z, got, sizeof got));
    GPU_OK(tsr_stream_reached(queue, other, &reached));
    ck_assert(!reached); /* the upload is an earlier part of the stream's work */

    /* This work waits for the upload, on the same stream and on the other one. */
    GPU_OK(tsr_scale(queue, y, x, 1, 1));
    GPU_OK(tsr_stream_mark(queue, &sum));
    GPU_OK(tsr_scale(second, y, y, 1, 1));
    GPU_OK(tsr_stream_submit(second));
    GPU_FAILS(tsr_stream_wait_point(second, UINT64_MAX, 1000000), TSR_ERR_TIMEOUT, "still running");
    GPU_OK(tsr_stream_reached(queue, sum, &reached));
    ck_assert(!reached);
    hold(TRANSFER, false);
    GPU_OK(tsr_stream_wait_point(queue, sum, UINT64_MAX));
    GPU_OK(tsr_stream_reached(queue, after, &reached));
    ck_assert(reached);
    check_is(second, y, 7);
    free(values);
    tsr_stream_destroy(&second);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&z);
}
END_TEST

/* While the compute queue does not run, uploads and downloads of other tensors complete. A transfer
 * of a tensor that recorded work uses waits for that work. */
START_TEST(transfers_go_on_during_work)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &large), *y = gpu_new(TSR_F32, 1, &large),
               *z = gpu_new(TSR_F32, 1, &large);
    put(queue, x, 2);
    put(queue, y, 0);
    GPU_OK(tsr_stream_wait(queue));
    hold(COMPUTE, true);
    GPU_OK(tsr_scale(queue, z, x, 1, 1));
    put(queue, y, 9);
    check_is(queue, y, 9);
    put(queue, x, 4); /* recorded work still has to read x */
    ck_assert(!tsr__buffer_idle(x->buffer));
    GPU_FAILS(tsr_stream_wait_point(queue, UINT64_MAX, 1000000), TSR_ERR_TIMEOUT, "still running");
    hold(COMPUTE, false);
    check_is(queue, z, 3);
    check_is(queue, x, 4);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&z);
}
END_TEST

/* If a tensor is destroyed during its upload, its memory must become free when the upload is
 * complete, and not before. */
START_TEST(memory_of_transfers_becomes_free)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &large), *z = gpu_new(TSR_F32, 1, (int64_t[]){1000});
    uint64_t used, less;
    put(queue, x, 5);
    tsr_device_memory_usage(gpu, NULL, &used);
    tsr_tensor_destroy(&x);
    GPU_OK(tsr__timeline_wait(gpu, queue->transfers->timeline,
                              queue->transfers->timeline->submitted, UINT64_MAX));
    GPU_OK(tsr_fill(queue, z, 1)); /* any work */
    tsr_device_memory_usage(gpu, NULL, &less);
    ck_assert_uint_le(less, used - (uint64_t)large * 4);
    tsr_tensor_destroy(&z);
}
END_TEST

START_TEST(the_timer_counts_uploads)
{
    if (gpu->info.timestamp_period_ns <= 0)
        SKIP("there are no timestamps");
    tsr_tensor *x = gpu_new(TSR_F32, 1, &large);
    bool reached;
    uint64_t ns, point;
    GPU_OK(tsr_stream_timer_begin(queue));
    hold(TRANSFER, true);
    put(queue, x, 5);
    GPU_OK(tsr_stream_timer_end(queue));
    GPU_OK(tsr_stream_submit(queue));
    point = queue->timeline->submitted;
    GPU_FAILS(tsr__timeline_wait(gpu, queue->timeline, point, 1000000), TSR_ERR_TIMEOUT, "running");
    hold(TRANSFER, false);
    GPU_OK(tsr_stream_timer_read(queue, &ns));
    GPU_OK(tsr_stream_reached(queue, point, &reached));
    ck_assert(reached);
    tsr_tensor_destroy(&x);
}
END_TEST

/* Random programs ----------------------------------------------------------------------------- */

enum { STREAMS = 3, TENSORS = 5, SIDE = 160, STEPS = 150, MOST = SIDE * SIDE };

typedef struct program {
    tsr_device *device;
    tsr_stream *streams[STREAMS];
    tsr_tensor *tensors[TENSORS];
    float *data;
    uint64_t digest; /* a hash of everything downloaded */
} program;

static void create_tensor(program *p, int i)
{
    const int64_t shape[] = {SIDE, SIDE};
    GPU_OK(tsr_tensor_create(p->device, TSR_F32, 2, shape, &p->tensors[i]));
    GPU_OK(tsr_fill(p->streams[0], p->tensors[i], (double)i));
}

/* Returns all of a tensor, some of its rows, or a view with gaps. */
static tsr_tensor *part_of(gpu_random *random, tsr_tensor *tensor)
{
    tsr_tensor *part = NULL;
    const int64_t first = gpu_random_between(random, 0, SIDE - 1),
                  last = gpu_random_between(random, first + 1, SIDE);
    switch (gpu_random_between(random, 0, 3)) {
    case 0:
        GPU_OK(tsr_tensor_slice(tensor, 0, first, last, 1, &part));
        break;
    case 1:
        GPU_OK(tsr_tensor_slice(tensor, 1, first, last, 1, &part));
        break;
    default:
        GPU_OK(tsr_tensor_slice(tensor, 0, 0, SIDE, 1, &part));
    }
    return part;
}

static void transfer(program *p, gpu_random *random, tsr_stream *stream, tsr_tensor *tensor,
                     bool up)
{
    tsr_tensor *part = part_of(random, tensor);
    const uint64_t count = (uint64_t)tsr_layout_count(tsr_tensor_layout(part));
    if (up) {
        for (uint64_t i = 0; i < count; i++)
            p->data[i] = (float)gpu_random_unit(random);
        GPU_OK(tsr_tensor_upload(stream, part, p->data, count * 4));
        memset(p->data, 0xff, count * 4);
    } else {
        GPU_OK(tsr_tensor_download(stream, part, p->data, count * 4));
        for (uint64_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &p->data[i], sizeof bits);
            p->digest = (p->digest ^ bits) * UINT64_C(0x100000001b3);
        }
    }
    tsr_tensor_destroy(&part);
}

static void step(program *p, gpu_random *random)
{
    tsr_stream *stream = p->streams[gpu_random_between(random, 0, STREAMS - 1)];
    const int i = (int)gpu_random_between(random, 0, TENSORS - 1);
    tsr_tensor *a = p->tensors[i], *b = p->tensors[gpu_random_between(random, 0, TENSORS - 1)],
               *c = p->tensors[gpu_random_between(random, 0, TENSORS - 1)];
    switch (gpu_random_between(random, 0, 9)) {
    case 0:
    case 1:
    case 2:
        transfer(p, random, stream, a, true);
        break;
    case 3:
        transfer(p, random, stream, a, false);
        break;
    case 4:
        GPU_OK(tsr_stream_submit(stream));
        break;
    case 5:
        tsr_tensor_destroy(&p->tensors[i]);
        create_tensor(p, i);
        break;
    case 6:
        if (a != b)
            GPU_OK(tsr_copy(stream, a, b));
        break;
    case 7:
        GPU_OK(tsr_scale(stream, a, b, 0.5, 0.25));
        break;
    default:
        GPU_OK(tsr_binary(stream, a, b, c, TSR_BINARY_ADD));
    }
}

/* Runs program number `seed`, whose results depend only on its order, and returns their hash. */
static uint64_t run_program(uint64_t seed, bool two_queues, bool direct)
{
    program p = {.data = malloc(MOST * sizeof(float)), .digest = 1};
    gpu_random random = {seed};
    const tsr_device_params params = {
        .struct_size = sizeof params, .staging_bytes = 256 << 10, .force_staging = !direct};
    setenv("TESSERA_TRANSFER_QUEUE", two_queues ? "1" : "0", 1);
    GPU_OK(tsr_device_open(&params, &p.device));
    unsetenv("TESSERA_TRANSFER_QUEUE");
    ck_assert((p.device->transfer.handle != NULL) == two_queues);
    p.device->transfer_least_bytes = 20000;
    for (int i = 0; i < STREAMS; i++)
        GPU_OK(tsr_stream_create(p.device, &p.streams[i]));
    for (int i = 0; i < TENSORS; i++)
        create_tensor(&p, i);
    for (int i = 0; i < STEPS; i++)
        step(&p, &random);
    for (int i = 0; i < TENSORS; i++)
        transfer(&p, &random, p.streams[0], p.tensors[i], false);
    for (int i = 0; i < TENSORS; i++)
        tsr_tensor_destroy(&p.tensors[i]);
    for (int i = 0; i < STREAMS; i++)
        tsr_stream_destroy(&p.streams[i]);
    tsr_device_close(&p.device);
    free(p.data);
    return p.digest;
}

START_TEST(two_queues_compute_what_one_computes)
{
    for (uint64_t seed = 1; seed <= 2; seed++) {
        const uint64_t want = run_program(seed, false, false);
        ck_assert_uint_eq(run_program(seed, true, false), want);
        ck_assert_uint_eq(run_program(seed, true, true), want);
    }
}
END_TEST

/* Memory that the host writes ---------------------------------------------------------------- */

START_TEST(idle_tensors_are_written_directly)
{
    tsr_tensor *x = gpu_new(TSR_F32, 1, &large), *y = gpu_new(TSR_F32, 1, &large), *part = NULL;
    void *at = &at;
    if (!memory_is_direct()) {
        ck_assert_ptr_null(x->buffer->direct);
    } else {
        ck_assert_ptr_nonnull(x->buffer->direct);
        ck_assert_ptr_null(x->buffer->host);
        ck_assert(!tsr__memory_is_mapped(gpu));
        GPU_FAILS(tsr_tensor_map(x, &at), TSR_ERR_UNSUPPORTED, "cannot be mapped");
        put(queue, x, 1);
        check_is(queue, x, 1);
        ck_assert_ptr_null(queue->upload.chunk[0]); /* nothing was staged */
        ck_assert_ptr_null(queue->transfers->upload.chunk[0]);

        /* Work that reads the tensor is pending, so the upload is staged. */
        hold(COMPUTE, true);
        GPU_OK(tsr_scale(queue, y, x, 1, 1));
        put(queue, x, 7);
        ck_assert_ptr_nonnull(queue->transfers->upload.chunk[0]);
        hold(COMPUTE, false);
        check_is(queue, y, 2);
        check_is(queue, x, 7);
        GPU_OK(tsr_tensor_slice(x, 0, 0, large, 2, &part));
        put(queue, part, 3); /* the part is not contiguous, so it is staged, too */
        check_is(queue, part, 3);
        tsr_tensor_destroy(&part);
    }
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

START_TEST(uploads_are_staged_if_mapping_fails)
{
    bool failed = false;
    for (uint64_t nth = 0; memory_is_direct() && !failed; nth++) {
        tsr_tensor *x = NULL;
        const int64_t count = large + (int64_t)nth * (1 << 20); /* no kept slab is so large */
        tsr__fault_arm(TSR__FAULT_VULKAN, nth, VK_ERROR_MEMORY_MAP_FAILED);
        const tsr_status status = tsr_tensor_create(gpu, TSR_F32, 1, &count, &x);
        const char *site = tsr__fault_site();
        tsr__fault_disarm();
        ck_assert_ptr_nonnull(site);
        failed = strcmp(site, "vkMapMemory") == 0;
        ck_assert_int_eq(status, failed ? TSR_OK : TSR_ERR_DRIVER);
        if (failed) {
            ck_assert_ptr_null(x->buffer->direct);
            put(queue, x, 3);
            check_is(queue, x, 3);
        }
        tsr_tensor_destroy(&x);
    }
}
END_TEST

/* The ring of staging memory ----------------------------------------------------------------- */

START_TEST(less_memory_makes_smaller_chunks)
{
    tsr_device *device;
    tsr_stream *stream;
    tsr_tensor *tensor;
    GPU_OK(tsr_device_open(tsr_device_params(.force_staging = true, .memory_limit_bytes = 26 << 20),
                           &device));
    GPU_OK(tsr_stream_create(device, &stream));
    /* The usual ring of 16 MiB does not fit beside the tensor's 12 MiB. */
    GPU_OK(tsr_tensor_create(device, TSR_F32, 1, (int64_t[]){3 << 20}, &tensor));
    put(stream, tensor, 8);
    ck_assert_uint_eq(stream->transfers->upload.chunk[0]->size_bytes, 8 << 20);
    ck_assert_uint_eq(stream->transfers->upload.chunk[1]->size_bytes, 4 << 20);
    /* One chunk takes the rest of the memory, so the ring has only this one. */
    check_is(stream, tensor, 8);
    ck_assert_uint_eq(stream->transfers->readback.chunk[0]->size_bytes, 2 << 20);
    ck_assert_ptr_null(stream->transfers->readback.chunk[1]);
    tsr_tensor_destroy(&tensor);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}
END_TEST

START_TEST(the_size_of_staging_memory)
{
    tsr_device *device = NULL;
    GPU_FAILS(tsr_device_open(tsr_device_params(.staging_bytes = 1000), &device), TSR_ERR_INVALID,
              "staging_bytes is 1000; it must be 0 or at least 262144");
    ck_assert_ptr_null(device);
    GPU_OK(tsr_device_open(tsr_device_params(.staging_bytes = 8 << 20), &device));
    ck_assert_uint_eq(device->staging_chunk_bytes, 2 << 20);
    tsr_device_close(&device);
}
END_TEST

/* Failures ----------------------------------------------------------------------------------- */

typedef struct work {
    tsr_device *device;
    tsr_stream *stream;
    tsr_tensor *x, *y;
} work;

/* Makes an upload, a copy that needs it, an upload that waits for the copy, and downloads. May be
 * called again after a failure. The work builds no pipelines, because they would take most of the
 * time. */
static tsr_status run_work(work *w, float *values, float *got)
{
    const uint64_t bytes = (uint64_t)medium * sizeof *values;
    TSR__TRY(w->device ? TSR_OK
                       : tsr_device_open(
                             tsr_device_params(.force_staging = true, .staging_bytes = 1 << 20),
                             &w->device));
    TSR__TRY(w->stream ? TSR_OK : tsr_stream_create(w->device, &w->stream));
    TSR__TRY(w->x ? TSR_OK : tsr_tensor_create(w->device, TSR_F32, 1, &medium, &w->x));
    TSR__TRY(w->y ? TSR_OK : tsr_tensor_create(w->device, TSR_F32, 1, &medium, &w->y));
    TSR__TRY(tsr_tensor_upload(w->stream, w->x, values, bytes));
    TSR__TRY(tsr_copy(w->stream, w->y, w->x));
    TSR__TRY(tsr_tensor_upload(w->stream, w->x, values + medium, bytes));
    TSR__TRY(tsr_tensor_download(w->stream, w->y, got, bytes));
    TSR__TRY(tsr_tensor_download(w->stream, w->x, got + medium, bytes));
    return tsr_stream_wait(w->stream);
}

static void close_work(work *w)
{
    tsr_tensor_destroy(&w->x);
    tsr_tensor_destroy(&w->y);
    tsr_stream_destroy(&w->stream);
    tsr_device_close(&w->device);
}

/* Makes the nth event fail. Afterwards everything must still work, or, if the device was lost,
 * fail. Returns false if there is no such event. */
static bool survives(tsr__fault_kind kind, uint64_t nth, int code, float *values, float *got)
{
    work w = {0};
    /* Failures while a device is opened are tested with one code. */
    if (code != VK_ERROR_OUT_OF_HOST_MEMORY)
        GPU_OK(tsr_device_open(tsr_device_params(.force_staging = true, .staging_bytes = 1 << 20),
                               &w.device));
    tsr__fault_arm(kind, nth, code);
    const tsr_status status = run_work(&w, values, got);
    const char *site = tsr__fault_site();
    tsr__fault_disarm();
    if (code == VK_ERROR_DEVICE_LOST && w.device && atomic_load(&w.device->lost)) {
        ck_assert_int_eq(status, TSR_ERR_DEVICE_LOST);
        ck_assert_int_eq(run_work(&w, values, got), TSR_ERR_DEVICE_LOST);
        if (w.stream)
            ck_assert_int_eq(tsr_stream_wait(w.stream), TSR_ERR_DEVICE_LOST);
    } else {
        if (!site)
            ck_assert_msg(status == TSR_OK, "%s", tsr_last_error());
        if (status != TSR_OK)
            GPU_OK(run_work(&w, values, got));
        ck_assert_msg(memcmp(got, values, 2 * (size_t)medium * sizeof *got) == 0, "after %s", site);
    }
    close_work(&w);
    return site != NULL;
}

static const struct {
    tsr__fault_kind kind;
    int code;
} faults[] = {
    {TSR__FAULT_VULKAN, VK_ERROR_OUT_OF_HOST_MEMORY},
    {TSR__FAULT_VULKAN, VK_ERROR_DEVICE_LOST},
    {TSR__FAULT_ALLOC, 0},
};

START_TEST(everything_that_fails_is_survived)
{
    float *values = counting(2 * medium, 1), *got = malloc(2 * (size_t)medium * sizeof *got);
    for (uint64_t nth = 0; survives(faults[_i].kind, nth, faults[_i].code, values, got); nth++)
        continue;
    free(values);
    free(got);
}
END_TEST

TESTS(queues)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, gpu_teardown);
    tcase_add_test(tests, families_are_chosen_by_what_they_can_do);
    tcase_add_test(tests, memory_is_written_directly_only_if_the_host_reaches_all_of_it);
    tcase_add_test(tests, the_device_says_which_it_uses);
    tcase_add_test(tests, one_queue_on_request);
    tcase_add_test(tests, two_queues_compute_what_one_computes);
    tcase_add_test(tests, idle_tensors_are_written_directly);
    tcase_add_test(tests, uploads_are_staged_if_mapping_fails);
    tcase_add_test(tests, less_memory_makes_smaller_chunks);
    tcase_add_test(tests, the_size_of_staging_memory);
    tcase_add_loop_test(tests, everything_that_fails_is_survived, 0, 3);
}

TESTS(staged)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup_staged, gpu_teardown);
    tcase_add_test(tests, small_transfers_stay_on_their_queue);
    tcase_add_test(tests, work_goes_on_during_an_upload);
    tcase_add_test(tests, transfers_go_on_during_work);
    tcase_add_test(tests, memory_of_transfers_becomes_free);
    tcase_add_test(tests, the_timer_counts_uploads);
}
