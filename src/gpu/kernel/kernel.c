/* Kernels that the caller supplies. */
#include "tessera/kernel.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "gpu/kernel/glsl.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/spirv/spirv.h"
#include "gpu/stream/stream.h"

#define ADDRESS_BYTES 8
#define TENSORS_MAX (TSR__PUSH_MAX / ADDRESS_BYTES)

_Static_assert(TENSORS_MAX <= TSR__ACCESS_MAX, "a dispatch declares an access for every tensor");

struct tsr_kernel {
    tsr_device *device;
    tsr__pipeline *pipeline;
    char *name;
    int tensor_count;
    uint32_t scalar_bytes;
};

/* Creating ------------------------------------------------------------------------------------- */

static tsr_status check_subgroup_size(const tsr_device *device, const char *name, uint32_t size)
{
    const tsr_device_info *info = &device->info;
    if (size == 0)
        return TSR_OK;
    TSR__REQUIRE((size & (size - 1)) == 0, "%s: subgroup_size is %u, not a power of two", name,
                 (unsigned)size);
    if (!device->subgroups_demanded)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: subgroup_size is %u; %s does not let kernels set it", name,
                         (unsigned)size, info->name);
    if (size < info->subgroup_size_min || size > info->subgroup_size_max)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: subgroup_size is %u; %s has %u to %u", name,
                         (unsigned)size, info->name, (unsigned)info->subgroup_size_min,
                         (unsigned)info->subgroup_size_max);
    return TSR_OK;
}

static tsr_status check_params(const tsr_device *device, const char *name,
                               const tsr_kernel_params *params)
{
    TSR__REQUIRE(!params->glsl != !params->spirv,
                 "%s: %s of glsl and spirv are set; set exactly one", name,
                 params->glsl ? "both" : "none");
    TSR__REQUIRE(params->tensor_count >= 0, "%s: tensor_count is %d", name, params->tensor_count);
    TSR__REQUIRE(params->scalar_bytes % 4 == 0, "%s: scalar_bytes is %u, not a multiple of 4", name,
                 (unsigned)params->scalar_bytes);
    uint64_t bytes = (uint64_t)params->tensor_count * ADDRESS_BYTES + params->scalar_bytes;
    uint64_t limit = device->info.max_push_constant_bytes;
    limit = limit < TSR__PUSH_MAX ? limit : TSR__PUSH_MAX;
    if (bytes > limit)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: %d tensors and %u bytes of scalars are %llu bytes of push constants; "
                         "there are %llu",
                         name, params->tensor_count, (unsigned)params->scalar_bytes,
                         (unsigned long long)bytes, (unsigned long long)limit);
    TSR__REQUIRE(params->constant_count >= 0 && params->constant_count <= TSR__SPEC_MAX,
                 "%s: constant_count is %d; 0 to %d can be set", name, params->constant_count,
                 TSR__SPEC_MAX);
    TSR__REQUIRE(params->constant_count == 0 || params->constants,
                 "%s: constant_count is %d but constants is NULL", name, params->constant_count);
    return check_subgroup_size(device, name, params->subgroup_size);
}

static uint32_t push_bytes_of(const tsr_kernel *kernel)
{
    return (uint32_t)kernel->tensor_count * ADDRESS_BYTES + kernel->scalar_bytes;
}

static tsr_status build(tsr_kernel *kernel, const uint32_t *words, uint64_t count,
                        const tsr_kernel_params *params)
{
    TSR__TRY(tsr__spirv_check(&kernel->device->info, kernel->name, words, count, params->constants,
                              params->constant_count, push_bytes_of(kernel)));
    return tsr__pipeline_create(kernel->device, kernel->name, words, (size_t)count * sizeof *words,
                                params->constants, params->constant_count, params->subgroup_size,
                                &kernel->pipeline);
}

static tsr_status build_glsl(tsr_kernel *kernel, const tsr_kernel_params *params)
{
    uint32_t *words;
    uint64_t count;
    TSR__TRY(tsr__glsl_compile(kernel->name, params->glsl, &words, &count));
    tsr_status status = build(kernel, words, count, params);
    tsr__free(words);
    return status;
}

/* The pipeline exists longer if batches that have not run yet hold references to it. */
void tsr_kernel_destroy(tsr_kernel **kernel)
{
    if (!kernel || !*kernel)
        return;
    tsr_kernel *closing = *kernel;
    tsr_device *device = closing->device;
    *kernel = NULL;
    if (tsr__device_is_inherited(device))
        return;
    tsr__pipeline_release(closing->pipeline);
    tsr__free(closing->name);
    tsr__free(closing);
    tsr__device_release(device);
}

tsr_status tsr_kernel_create(tsr_device *device, const tsr_kernel_params *params, tsr_kernel **out)
{
    TSR__REQUIRE(device, "kernel_create: device is NULL");
    TSR__REQUIRE(params, "kernel_create: params is NULL");
    TSR__TAKE(tsr_kernel_params, params);
    TSR__REQUIRE(out, "kernel_create: out is NULL");
    const char *name = params->name ? params->name : "kernel";
    TSR__TRY(check_params(device, name, params));
    TSR__TRY(tsr__device_check(device));

    tsr_kernel *kernel = tsr__calloc(1, sizeof *kernel);
    if (!kernel)
        return TSR_ERR_NO_MEMORY;
    kernel->device = device;
    kernel->tensor_count = params->tensor_count;
    kernel->scalar_bytes = params->scalar_bytes;
    tsr__device_retain(device);
    kernel->name = tsr__strdup(name);
    tsr_status status = kernel->name ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = params->glsl ? build_glsl(kernel, params)
                              : build(kernel, params->spirv, params->spirv_words, params);
    if (status != TSR_OK) {
        tsr_kernel_destroy(&kernel);
        return status;
    }
    *out = kernel;
    return TSR_OK;
}

/* Running -------------------------------------------------------------------------------------- */

static tsr_status check_run(const tsr_stream *stream, const tsr_kernel *kernel,
                            const tsr_kernel_argument *arguments, const void *scalars,
                            const uint32_t *groups)
{
    TSR__REQUIRE(stream, "kernel_run: stream is NULL");
    TSR__REQUIRE(kernel, "kernel_run: kernel is NULL");
    const char *name = kernel->name;
    const tsr_device_info *info = &kernel->device->info;
    TSR__REQUIRE(tsr_stream_device(stream) == kernel->device,
                 "%s: the kernel is on device %d (%s), the stream on another device object", name,
                 info->index, info->name);
    TSR__REQUIRE(arguments || kernel->tensor_count == 0, "%s: arguments is NULL; it has %d tensors",
                 name, kernel->tensor_count);
    TSR__REQUIRE(scalars || kernel->scalar_bytes == 0,
                 "%s: scalars is NULL; it has %u bytes of them", name,
                 (unsigned)kernel->scalar_bytes);
    TSR__REQUIRE(groups, "%s: groups is NULL", name);
    for (int i = 0; i < 3; i++)
        TSR__REQUIRE(groups[i] <= info->max_workgroup_count[i],
                     "%s: groups[%d] is %u; %s has at most %u", name, i, (unsigned)groups[i],
                     info->name, (unsigned)info->max_workgroup_count[i]);
    return TSR_OK;
}

/* `arguments` has the library's size of tsr_kernel_argument. */
static tsr_status run_taken(tsr_stream *stream, tsr_kernel *kernel,
                            const tsr_kernel_argument *arguments, const void *scalars,
                            const uint32_t groups[3])
{
    for (int i = 0; i < kernel->tensor_count; i++) {
        char argument[32];
        snprintf(argument, sizeof argument, "argument %d", i);
        TSR__TRY(tsr__require_tensor(kernel->name, argument, stream, arguments[i].tensor));
    }
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return TSR_OK;

    unsigned char push[TSR__PUSH_MAX];
    tsr__dispatch dispatch = {
        .push = push,
        .push_bytes = push_bytes_of(kernel),
        .groups = {groups[0], groups[1], groups[2]},
        .access_count = kernel->tensor_count,
    };
    unsigned char *end = push;
    for (int i = 0; i < kernel->tensor_count; i++) {
        const tsr_tensor *tensor = arguments[i].tensor;
        uint64_t address = tsr__tensor_address(tensor);
        memcpy(end, &address, ADDRESS_BYTES);
        end += ADDRESS_BYTES;
        dispatch.access[i] = arguments[i].written ? tsr__write_of(tensor) : tsr__read_of(tensor);
    }
    if (kernel->scalar_bytes > 0)
        memcpy(end, scalars, kernel->scalar_bytes);
    return tsr__stream_run(stream, kernel->pipeline, &dispatch);
}

tsr_status tsr_kernel_run(tsr_stream *stream, tsr_kernel *kernel,
                          const tsr_kernel_argument *arguments, const void *scalars,
                          const uint32_t groups[3])
{
    void *taken;
    TSR__TRY(check_run(stream, kernel, arguments, scalars, groups));
    TSR__TRY(tsr__struct_take_array("tsr_kernel_argument", sizeof(tsr_kernel_argument),
                                    (uint64_t)kernel->tensor_count, arguments, &taken));
    const tsr_status status = run_taken(stream, kernel, taken, scalars, groups);
    tsr__free(taken);
    return status;
}
