/* Tests slabs (blocks of device memory that tensors share), mapped pages, limits, and lack of
 * memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "gpu/internal.h"
#include "gpu/memory/slabs.h"
#include "gpu/memory/tensor.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"

static uint64_t used(void)
{
    uint64_t bytes;
    tsr_device_memory_usage(gpu, NULL, &bytes);
    return bytes;
}

static uint64_t allocated(void)
{
    uint64_t bytes;
    tsr_device_memory_usage(gpu, &bytes, NULL);
    return bytes;
}

#define TENSORS 300

START_TEST(tensors_do_not_overlap_and_are_freed)
{
    gpu_random random = {11};
    tsr_tensor *tensors[TENSORS] = {0};
    for (int round = 0; round < 3000; round++) {
        int i = (int)gpu_random_between(&random, 0, TENSORS - 1);
        if (tensors[i]) {
            tsr_tensor_destroy(&tensors[i]);
            continue;
        }
        int64_t count = gpu_random_between(&random, 0, 1 << gpu_random_between(&random, 0, 18));
        tensors[i] = gpu_new(TSR_U8, 1, &count);
        ck_assert(tsr__tensor_address(tensors[i]) % 256 == 0);
    }
    uint64_t held = 0;
    for (int i = 0; i < TENSORS; i++) {
        if (!tensors[i])
            continue;
        const tsr__buffer *a = tensors[i]->buffer;
        held += a->reserved_bytes;
        ck_assert(a->reserved_bytes >= a->size_bytes);
        for (int j = 0; j < i; j++) {
            if (!tensors[j])
                continue;
            const tsr__buffer *b = tensors[j]->buffer;
            ck_assert(a->address + a->reserved_bytes <= b->address ||
                      b->address + b->reserved_bytes <= a->address);
        }
    }
    ck_assert_uint_eq(used(), held);
    for (int i = 0; i < TENSORS; i++)
        tsr_tensor_destroy(&tensors[i]);
    ck_assert_uint_eq(used(), 0);
    /* The tensors fit into one slab of 16 MiB, which is kept for later tensors. */
    ck_assert_uint_le(allocated(), UINT64_C(16) << 20);
}
END_TEST

START_TEST(large_tensors_have_their_own_memory)
{
    tsr_tensor *tensor = gpu_new(TSR_F32, 1, (int64_t[]){8 << 20});
    ck_assert_uint_eq(allocated(), UINT64_C(32) << 20);
    ck_assert_uint_eq(used(), UINT64_C(32) << 20);
    tsr_tensor_destroy(&tensor);
    ck_assert_uint_eq(used(), 0);
    ck_assert_uint_eq(allocated(), UINT64_C(32) << 20);
}
END_TEST

/* The memory of destroyed large tensors is kept up to a limit. Beyond it, the slabs that were
 * emptied first are freed. */
START_TEST(memory_of_large_tensors_is_kept)
{
    const tsr_device_info *info = tsr_device_get_info(gpu);
    const uint64_t share = tsr_device_heap(info, 0)->size_bytes / 16;
    /* The size is such that the limit allows three kept slabs. */
    int64_t size = (int64_t)(share / 4 + (1 << 20)), less = size - size / 16;
    tsr_tensor *tensor[4];
    uint64_t address[4];
    for (int i = 0; i < 4; i++) {
        tensor[i] = gpu_new(TSR_U8, 1, &size);
        address[i] = tsr__tensor_address(tensor[i]);
    }
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&tensor[i]);
    ck_assert_uint_eq(used(), 0);
    ck_assert_uint_le(allocated(), share);
    ck_assert_uint_ge(allocated(), 3 * (uint64_t)size);
    for (int i = 0; i < 3; i++) {
        tensor[i] = gpu_new(TSR_U8, 1, i == 1 ? &less : &size);
        uint64_t at = tsr__tensor_address(tensor[i]);
        ck_assert(at == address[1] || at == address[2] || at == address[3]);
    }
    ck_assert_uint_lt(used(), allocated());
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensor[i]);
    /* A tensor of half the size does not get one of the kept slabs. */
    tensor[0] = gpu_new(TSR_U8, 1, (int64_t[]){size / 2});
    ck_assert_uint_gt(allocated(), 3 * (uint64_t)size);
    tsr_tensor_destroy(&tensor[0]);
}
END_TEST

/* Small tensors share slabs. Empty slabs are kept, so that a program whose steps need the same
 * memory allocates it from the system only once. */
START_TEST(memory_of_small_tensors_is_kept)
{
    enum { COUNT = 12 };
    tsr_tensor *tensor[COUNT];
    uint64_t most = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            tensor[i] = gpu_new(TSR_U8, 1, (int64_t[]){3 << 20});
        ck_assert(round == 0 || allocated() == most);
        most = allocated();
        ck_assert_uint_ge(most, UINT64_C(36) << 20);
        for (int i = 0; i < COUNT; i++)
            tsr_tensor_destroy(&tensor[i]);
        ck_assert_uint_eq(used(), 0);
        ck_assert_uint_eq(allocated(), most);
    }
}
END_TEST

/* A GPU shares the host's memory, but the host can only map memory that it does not cache. */
START_TEST(uncached_memory_is_not_mapped)
{
    VkPhysicalDeviceMemoryProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    gpu->instance->vk.GetPhysicalDeviceMemoryProperties2(gpu->physical, &properties);
    VkPhysicalDeviceMemoryProperties *types = &properties.memoryProperties;
    for (int cached = 1; cached >= 0; cached--) {
        tsr_device device = *gpu;
        uint64_t size;
        device.wants_mapping = true;
        device.info.type = TSR_DEVICE_INTEGRATED;
        for (uint32_t i = 0; i < types->memoryTypeCount; i++) {
            VkMemoryPropertyFlags *flags = &types->memoryTypes[i].propertyFlags;
            *flags |= VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
            if (!cached)
                *flags ^= VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
        }
        device.memory_properties = *types;
        tsr__attachments_init(&device.attachments);
        GPU_OK(tsr__memory_size(&device, &size));
        ck_assert_int_eq(tsr__memory_is_mapped(&device), cached);
        tsr__attachments_destroy(&device);
    }
}
END_TEST

/* Copies the tensor's contents to a tensor of the device and back. */
static void check_shared(tsr_tensor *host)
{
    float *values;
    const int64_t count = tsr_tensor_layout(host)->shape[0];
    tsr_tensor *tensor = gpu_new(TSR_F32, 1, &count);
    GPU_OK(tsr_tensor_map(host, (void **)&values));
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)i;
    GPU_OK(tsr_scale(queue, tensor, host, 2, 0));
    GPU_OK(tsr_scale(queue, host, tensor, 1, 1));
    GPU_OK(tsr_stream_wait(queue));
    for (int64_t i = 0; i < count; i++)
        ck_assert(values[i] == (float)(2 * i + 1));
    tsr_tensor_destroy(&tensor);
}

START_TEST(memory_that_networks_can_access)
{
    tsr_tensor *host = NULL;
    ck_assert(tsr_device_get_info(gpu)->external_memory_host == (gpu->host_import_alignment > 0));
    /* Tests memory that the device imports from the host, and a device that cannot import it.
     * The sizes differ, because a kept slab would be used again for the same size. */
    for (int imports = 1; imports >= 0; imports--) {
        if (!imports)
            gpu->host_import_alignment = 0;
        int64_t count = imports ? 1000 : 100000;
        GPU_OK(tsr_tensor_create_host(gpu, TSR_F32, 1, &count, &host));
        ck_assert((host->buffer->slab->own != NULL) == (gpu->host_import_alignment > 0));
        check_shared(host);
        tsr_tensor_destroy(&host);
    }
}
END_TEST

/* Imported memory consists of whole pages of the system, which have 64 KiB on some processors. */
START_TEST(imported_memory_is_whole_pages)
{
    const uint64_t page_bytes = 65536, own = gpu->host_import_alignment;
    const int64_t count = 3000;
    tsr_tensor *host = NULL;
    ck_assert_uint_eq(own % (uint64_t)sysconf(_SC_PAGESIZE), 0);
    if (own == 0)
        return;
    gpu->host_import_alignment = page_bytes;
    GPU_OK(tsr_tensor_create_host(gpu, TSR_F32, 1, &count, &host));
    ck_assert_ptr_nonnull(host->buffer->slab->own);
    ck_assert_uint_eq((uintptr_t)host->buffer->slab->host % page_bytes, 0);
    check_shared(host);
    tsr_tensor_destroy(&host);
    gpu->host_import_alignment = own;
}
END_TEST

/* A driver may refuse to import host memory, either when it is queried or when it is allocated.
 * Then the library allocates memory of the driver. */
START_TEST(memory_that_the_driver_refuses)
{
    int refused = 0;
    bool reached = true;
    for (uint64_t nth = 0; reached && gpu->host_import_alignment > 0; nth++) {
        tsr_tensor *host = NULL;
        tsr__fault_arm(TSR__FAULT_VULKAN, nth,
                       nth % 2 ? VK_ERROR_INITIALIZATION_FAILED : VK_ERROR_INVALID_EXTERNAL_HANDLE);
        int64_t count = 1000 + (int64_t)nth * 65536;
        tsr_status status = tsr_tensor_create_host(gpu, TSR_F32, 1, &count, &host);
        const char *site = tsr__fault_site();
        reached = site != NULL;
        tsr__fault_disarm();
        if (reached && (strcmp(site, "vkGetMemoryHostPointerPropertiesEXT") == 0 ||
                        strcmp(site, "vkAllocateMemory") == 0)) {
            ck_assert_int_eq(status, TSR_OK);
            ck_assert_ptr_null(host->buffer->slab->own);
            check_shared(host);
            refused++;
        } else {
            ck_assert_int_eq(status, reached ? TSR_ERR_DRIVER : TSR_OK);
        }
        tsr_tensor_destroy(&host);
    }
    ck_assert_int_eq(refused, gpu->host_import_alignment > 0 ? 2 : 0);
}
END_TEST

START_TEST(too_large_tensors_are_an_error_that_names_the_values)
{
    const tsr_device_info *info = tsr_device_get_info(gpu);
    tsr_tensor *tensor = NULL, *small;
    int64_t too_many = (int64_t)info->max_allocation_bytes / 4 + 1;
    GPU_FAILS(tsr_tensor_create(gpu, TSR_F32, 1, &too_many, &tensor), TSR_ERR_DEVICE_MEMORY,
              "out of device memory on");
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "bytes requested from heap 0"));
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "one allocation may have at most"));
    ck_assert_ptr_null(tensor);
    GPU_FAILS(tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){INT64_MAX}, &tensor), TSR_ERR_OVERFLOW,
              "9223372036854775807");
    small = gpu_new(TSR_F32, 1, (int64_t[]){10});
    tsr_tensor_destroy(&small);
}
END_TEST

START_TEST(errors_begin_with_the_name_of_the_function)
{
    const int64_t negative = -3;
    tsr_layout layout = {.dtype = TSR_F32, .ndim = 1, .shape = {-3}, .strides = {1}};
    tsr_tensor *tensor = NULL, *small = gpu_new(TSR_F32, 1, (int64_t[]){10});
#define BEGINS(call, text)                                                                         \
    GPU_FAILS(call, TSR_ERR_INVALID, text);                                                        \
    ck_assert_ptr_eq(strstr(tsr_last_error(), text), tsr_last_error())
    BEGINS(tsr_tensor_create(gpu, TSR_F32, 1, &negative, &tensor), "tensor_create: size -3");
    BEGINS(tsr_tensor_create(gpu, TSR_F32, 9, &negative, &tensor), "tensor_create: 9 dimensions");
    BEGINS(tsr_tensor_create(gpu, TSR_F64, 0, NULL, &tensor), "tensor_create: tensors cannot be");
    BEGINS(tsr_tensor_create_host(gpu, TSR_F32, 1, &negative, &tensor),
           "tensor_create_host: size -3");
    BEGINS(tsr_tensor_view(small, &layout, &tensor), "tensor_view: size -3");
#undef BEGINS
    ck_assert_ptr_null(tensor);
    tsr_tensor_destroy(&small);
}
END_TEST

/* lavapipe of Debian 12 reports a heap of 2 GiB, but allocates more. The test allocates only a
 * little more than that, because the memory may really be used: meson makes malloc fill it. */
START_TEST(lavapipe_has_the_memory_of_the_machine)
{
    enum { CHUNKS = 9 };
    const int64_t chunk = INT64_C(256) << 20;
    const tsr_device_info *info = tsr_device_get_info(gpu);
    tsr_tensor *tensors[CHUNKS] = {0};
    if (strcmp(info->driver_name, "llvmpipe") != 0)
        SKIP("the driver is %s", info->driver_name);
    ck_assert_uint_gt(tsr_device_heap(info, 0)->budget_bytes, CHUNKS * (uint64_t)chunk);
    for (int i = 0; i < CHUNKS; i++)
        tensors[i] = gpu_new(TSR_U8, 1, &chunk);
    for (int i = 0; i < CHUNKS; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

#ifndef _WIN32
/* For each mapping, Linux lists how its pages should be; "hg" stands for large pages. */
START_TEST(drivers_for_the_cpu_use_large_pages)
{
    tsr_tensor *tensor = gpu_new(TSR_U8, 1, (int64_t[]){8 << 20});
    FILE *maps = fopen("/proc/self/smaps", "r");
    void *memory;
    char line[512];
    bool inside = false, found = false;
    if (tsr_device_get_info(gpu)->type != TSR_DEVICE_CPU || !maps) {
        tsr_tensor_destroy(&tensor);
        SKIP("the driver is none for the CPU, or the system has no /proc/self/smaps");
    }
    GPU_OK(tsr_tensor_map(tensor, &memory));
    const uintptr_t middle = (uintptr_t)memory + (4 << 20);
    while (!found && fgets(line, sizeof line, maps)) {
        unsigned long long first, end;
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2)
            inside = middle >= first && middle < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, " hg") != NULL;
    }
    fclose(maps);
    ck_assert(found);
    tsr_tensor_destroy(&tensor);
}
END_TEST
#endif

START_TEST(a_limit_of_the_callers_own)
{
    tsr_device *device;
    tsr_tensor *a, *b = NULL;
    GPU_OK(tsr_device_open(tsr_device_params(.memory_limit_bytes = 6 << 20), &device));
    /* The limit leaves too little for a slab of the usual size, so the library allocates a slab
     * of exactly the needed size. */
    GPU_OK(tsr_tensor_create(device, TSR_U8, 1, (int64_t[]){1 << 20}, &a));
    GPU_FAILS(tsr_tensor_create(device, TSR_U8, 1, (int64_t[]){6 << 20}, &b), TSR_ERR_DEVICE_MEMORY,
              "the limit set for this device is 6291456 bytes");
    ck_assert_ptr_null(b);
    GPU_OK(tsr_tensor_create(device, TSR_U8, 1, (int64_t[]){5 << 20}, &b));
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    /* The slabs of the destroyed tensors are kept; they must be freed to make room for this
     * tensor. */
    GPU_OK(tsr_tensor_create(device, TSR_U8, 1, (int64_t[]){6 << 20}, &b));
    tsr_tensor_destroy(&b);
    tsr_device_close(&device);
}
END_TEST

/* Drivers limit the number of allocations. At the limit, empty slabs are freed before an allocation
 * is refused. */
START_TEST(the_number_of_allocations_is_limited)
{
    const int64_t large[] = {5 << 20, 7 << 20, 9 << 20, 11 << 20};
    tsr_device *device;
    tsr_tensor *tensors[3], *refused = NULL;
    GPU_OK(tsr_device_open(NULL, &device));
    device->max_allocations = 3;
    for (int i = 0; i < 3; i++)
        GPU_OK(tsr_tensor_create(device, TSR_U8, 1, &large[i], &tensors[i]));
    GPU_FAILS(tsr_tensor_create(device, TSR_U8, 1, &large[3], &refused), TSR_ERR_DEVICE_MEMORY,
              "11534336 bytes requested; the driver allows 3 allocations at the same time");
    ck_assert_ptr_null(refused);
    tsr_tensor_destroy(&tensors[0]); /* its slab is kept */
    GPU_OK(tsr_tensor_create(device, TSR_U8, 1, &large[3], &tensors[0]));
    tsr_tensor_destroy(&tensors[1]);
    /* The driver refuses an allocation while there is an empty slab. */
    device->max_allocations = 4;
    bool allocating = false;
    for (uint64_t nth = 0; !allocating; nth++) {
        tsr__fault_arm(TSR__FAULT_VULKAN, nth, VK_ERROR_TOO_MANY_OBJECTS);
        tsr_status status = tsr_tensor_create(device, TSR_U8, 1, &large[0], &tensors[1]);
        ck_assert_ptr_nonnull(tsr__fault_site());
        allocating = strcmp(tsr__fault_site(), "vkAllocateMemory") == 0;
        tsr__fault_disarm();
        ck_assert_int_eq(status, allocating ? TSR_OK : TSR_ERR_DRIVER);
    }
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_device_close(&device);
}
END_TEST

/* Creates and destroys tensors without waiting, so that the tensors existing at any time fit: one
 * at a time, each computed from the previous one, and a view that is used after its tensor is
 * destroyed. */
START_TEST(made_and_destroyed_without_end)
{
    tsr_device *device;
    tsr_stream *stream;
    tsr_tensor *before, *next;
    float last[4];
    const int64_t shape[] = {4, 1 << 18};
    GPU_OK(tsr_device_open(tsr_device_params(.memory_limit_bytes = 40 << 20), &device));
    GPU_OK(tsr_stream_create(device, &stream));
    GPU_OK(tsr_tensor_create(device, TSR_F32, 2, shape, &before));
    GPU_OK(tsr_fill(stream, before, 0));
    for (int i = 0; i < 100; i++) {
        tsr_tensor *column = NULL;
        GPU_OK(tsr_tensor_create(device, TSR_F32, 2, shape, &next));
        GPU_OK(tsr_scale(stream, next, before, 1, 1));
        GPU_OK(tsr_tensor_slice(before, 1, 0, 1, 1, &column));
        tsr_tensor_destroy(&before);
        GPU_OK(tsr_scale(stream, column, column, 0, 1));
        tsr_tensor_destroy(&column);
        before = next;
        if (i % 10 == 0)
            GPU_OK(tsr_stream_submit(stream));
    }
    GPU_OK(tsr_tensor_slice(before, 1, 7, 8, 1, &next));
    GPU_OK(tsr_tensor_download(stream, next, last, sizeof last));
    ck_assert(last[0] == 100 && last[3] == 100);
    ck_assert_uint_eq(atomic_load(&stream->timeline->left_bytes), 0);
    tsr_tensor_destroy(&next);
    tsr_tensor_destroy(&before);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}
END_TEST

TESTS(memory)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, tensors_do_not_overlap_and_are_freed);
    tcase_add_test(tests, large_tensors_have_their_own_memory);
    tcase_add_test(tests, memory_of_large_tensors_is_kept);
    tcase_add_test(tests, memory_of_small_tensors_is_kept);
    tcase_add_test(tests, uncached_memory_is_not_mapped);
    tcase_add_test(tests, memory_that_networks_can_access);
    tcase_add_test(tests, imported_memory_is_whole_pages);
    tcase_add_test(tests, memory_that_the_driver_refuses);
    tcase_add_test(tests, too_large_tensors_are_an_error_that_names_the_values);
    tcase_add_test(tests, errors_begin_with_the_name_of_the_function);
    tcase_add_test(tests, lavapipe_has_the_memory_of_the_machine);
#ifndef _WIN32
    tcase_add_test(tests, drivers_for_the_cpu_use_large_pages);
#endif
    tcase_add_test(tests, a_limit_of_the_callers_own);
    tcase_add_test(tests, the_number_of_allocations_is_limited);
    tcase_add_test(tests, made_and_destroyed_without_end);
}
