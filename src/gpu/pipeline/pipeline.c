/* Builds pipelines and keeps them in a table; pipeline.h describes their lifetime. */
#include "gpu/pipeline/pipeline.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "gpu/pipeline/disk_cache.h"
#include "gpu/spirv/spirv.h"

#define BUCKETS 256
#define MAX_REPLACED 4

struct tsr__pipeline {
    /* the device of a caller's kernel, to which the pipeline has a reference; NULL for built-in
     * shaders */
    tsr_device *owner;
    atomic_uint references; /* the number of references that callers and batches have */
    VkPipeline pipeline;
    /* The following fields are used only for built-in shaders. */
    tsr__pipeline *next;
    uint64_t last_use; /* the value of `uses` when the pipeline was last used */
    bool admitted;     /* device->admit has accepted this pipeline for good */
    tsr__shader shader;
    int spec_count;
    uint32_t spec[TSR__SPEC_MAX];
};

/* SPIR-V from which tests build a shader's pipelines, instead of the built-in SPIR-V. */
typedef struct replacement {
    tsr__shader shader;
    const uint32_t *code;
    size_t size_bytes;
} replacement;

typedef struct device_pipelines {
    pthread_mutex_t lock;
    VkPipelineLayout layout;
    VkPipelineCache cache;
    bool capture;
    tsr__cache_key key;
    uint64_t built; /* the number of pipelines built since the device was opened */
    /* the value of `built` when the driver's cache was last written to its file */
    uint64_t saved_built;
    uint64_t kept, limit;
    uint64_t uses; /* the number of calls of tsr__pipeline_get */
    replacement replaced[MAX_REPLACED];
    int replaced_count;
    tsr__pipeline *buckets[BUCKETS];
} device_pipelines;

static tsr_status create_objects(tsr_device *device, device_pipelines *pipelines)
{
    VkPushConstantRange range = {
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        .size = TSR__PUSH_MAX,
    };
    VkPipelineLayoutCreateInfo layout = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &range,
    };
    TSR__DEVICE_TRY(device, CreatePipelineLayout, device->handle, &layout, NULL,
                    &pipelines->layout);
    size_t bytes = 0;
    void *data = NULL;
    if (device->disk_cache) {
        tsr__cache_key_init(device, &pipelines->key);
        data = tsr__cache_read(&pipelines->key, &bytes);
    }
    VkPipelineCacheCreateInfo cache = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
        .initialDataSize = bytes,
        .pInitialData = data,
    };
    VkResult result =
        TSR__VK(&device->vk, CreatePipelineCache, device->handle, &cache, NULL, &pipelines->cache);
    tsr__free(data);
    return result < 0 ? tsr__device_fail(device, result, "vkCreatePipelineCache") : TSR_OK;
}

static void destroy_pipelines(tsr_device *device, void *attachment)
{
    device_pipelines *pipelines = attachment;
    for (int i = 0; i < BUCKETS; i++)
        while (pipelines->buckets[i]) {
            tsr__pipeline *entry = pipelines->buckets[i];
            pipelines->buckets[i] = entry->next;
            device->vk.DestroyPipeline(device->handle, entry->pipeline, NULL);
            tsr__free(entry);
        }
    if (pipelines->cache)
        device->vk.DestroyPipelineCache(device->handle, pipelines->cache, NULL);
    if (pipelines->layout)
        device->vk.DestroyPipelineLayout(device->handle, pipelines->layout, NULL);
    pthread_mutex_destroy(&pipelines->lock);
    tsr__free(pipelines);
}

static uint64_t usual_limit(const tsr_device *device)
{
    return device->traits.slow_pipelines ? TSR__CPU_PIPELINES : UINT64_MAX;
}

static tsr_status create_pipelines(tsr_device *device, void **out)
{
    device_pipelines *pipelines = tsr__calloc(1, sizeof *pipelines);
    if (!pipelines)
        return TSR_ERR_NO_MEMORY;
    pthread_mutex_init(&pipelines->lock, NULL);
    pipelines->limit = usual_limit(device);
    tsr_status status = create_objects(device, pipelines);
    if (status != TSR_OK) {
        destroy_pipelines(device, pipelines);
        return status;
    }
    *out = pipelines;
    return TSR_OK;
}

static void save_pipelines(tsr_device *device, void *attachment);

static const tsr__attachment_kind pipelines_kind = {
    .create = create_pipelines,
    .close = save_pipelines,
    .destroy = destroy_pipelines,
};

static tsr_status pipelines_of(tsr_device *device, device_pipelines **out)
{
    void *pipelines;
    TSR__TRY(tsr__device_attach(device, &pipelines_kind, &pipelines));
    *out = pipelines;
    return TSR_OK;
}

VkPipelineLayout tsr__pipelines_layout(const tsr_device *device)
{
    const device_pipelines *pipelines = tsr__device_attachment(device, &pipelines_kind);
    return pipelines->layout;
}

/* Building ------------------------------------------------------------------------------------- */

static tsr_status build(tsr_device *device, const device_pipelines *pipelines, const char *name,
                        const uint32_t *code, size_t size_bytes, const uint32_t *spec,
                        int spec_count, uint32_t subgroup_size, VkPipeline *out)
{
    VkSpecializationMapEntry entries[TSR__SPEC_MAX];
    TSR__REQUIRE(spec_count >= 0 && spec_count <= TSR__SPEC_MAX,
                 "%s: %d specialization constants; at most %d", name, spec_count, TSR__SPEC_MAX);
    for (int i = 0; i < spec_count; i++)
        entries[i] = (VkSpecializationMapEntry){
            .constantID = (uint32_t)i,
            .offset = (uint32_t)((size_t)i * sizeof *spec),
            .size = sizeof *spec,
        };
    VkSpecializationInfo specialization = {
        .mapEntryCount = (uint32_t)spec_count,
        .pMapEntries = entries,
        .dataSize = (size_t)spec_count * sizeof *spec,
        .pData = spec,
    };
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = size_bytes,
        .pCode = code,
    };
    VkShaderModule module;
    TSR__DEVICE_TRY(device, CreateShaderModule, device->handle, &module_info, NULL, &module);
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroups = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = subgroup_size,
    };
    /* Require a subgroup size only if the device has several. Drivers of GPUs with only one size
     * may not support the requirement. */
    bool choice = device->info.subgroup_size_min < device->info.subgroup_size_max;
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = pipelines->capture ? VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR : 0,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = subgroup_size > 0 && choice ? &subgroups : NULL,
                  .flags = subgroup_size > 0
                               ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT
                               : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = spec_count > 0 ? &specialization : NULL},
        .layout = pipelines->layout,
    };
    VkPipeline pipeline = VK_NULL_HANDLE;
    VkResult result = TSR__VK(&device->vk, CreateComputePipelines, device->handle, pipelines->cache,
                              1, &info, NULL, &pipeline);
    device->vk.DestroyShaderModule(device->handle, module, NULL);
    if (result < 0)
        return tsr__fail_context(tsr__device_fail(device, result, "vkCreateComputePipelines"),
                                 "shader %s", name);
    *out = pipeline;
    return TSR_OK;
}

static tsr__pipeline *find_pipeline(tsr__pipeline *entry, tsr__shader shader, const uint32_t *spec,
                                    int spec_count)
{
    for (; entry; entry = entry->next)
        if (entry->shader == shader && entry->spec_count == spec_count &&
            memcmp(entry->spec, spec, (size_t)spec_count * sizeof *spec) == 0)
            return entry;
    return NULL;
}

/* Returns the subgroup size that a shader requires, or 0. Some shaders give each subgroup of a
 * workgroup its own share of the work, so the number of subgroups must be known when the pipeline
 * is built. */
static uint32_t subgroup_size_of(const tsr_device *device, tsr__shader shader)
{
    switch (shader) {
    case TSR__SHADER_ATTENTION_COOPMAT:
    case TSR__SHADER_ATTENTION_COOPMAT_BF16:
    case TSR__SHADER_DELTA_SCAN_COOPMAT:
    case TSR__SHADER_MATMUL_COOPMAT:
    case TSR__SHADER_MATMUL_COOPMAT_BF16:
    case TSR__SHADER_MATMUL_COOPMAT2:
    case TSR__SHADER_MATMUL_COOPMAT2_BF16:
    case TSR__SHADER_MATMUL_GROUPED_COOPMAT:
    case TSR__SHADER_MATMUL_GROUPED_COOPMAT_BF16:
        return device->info.coopmat_subgroup_size;
    default:
        return 0;
    }
}

static tsr_status build_entry(tsr_device *device, const device_pipelines *pipelines,
                              tsr__shader shader, const uint32_t *spec, int spec_count,
                              tsr__pipeline **out)
{
    const tsr__shader_binary *binary = &tsr__shader_binaries[shader];
    const uint32_t *code = binary->variant[device->storage].code;
    size_t size_bytes = binary->variant[device->storage].size_bytes, special_bytes = 0;
    for (int i = 0; i < pipelines->replaced_count; i++)
        if (pipelines->replaced[i].shader == shader) {
            code = pipelines->replaced[i].code;
            size_bytes = pipelines->replaced[i].size_bytes;
        }
    if (!code)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "the compiler that built this library could not build the shader %s",
                         binary->name);
    tsr__pipeline *entry = tsr__calloc(1, sizeof *entry);
    if (!entry)
        return TSR_ERR_NO_MEMORY;
    uint32_t *kept = NULL, *infinite = NULL, *special = NULL;
    tsr_status status = tsr__spirv_keep_subnormals(device, code, size_bytes, &kept, &size_bytes);
    if (kept)
        code = kept;
    if (status == TSR_OK)
        status = tsr__spirv_keep_infinities(device, code, size_bytes, &infinite, &size_bytes);
    if (infinite)
        code = infinite;
    if (status == TSR_OK)
        status =
            tsr__spirv_specialize(code, size_bytes, spec, spec_count, &special, &special_bytes);
    if (status == TSR_OK)
        status = build(device, pipelines, binary->name, special, special_bytes, NULL, 0,
                       subgroup_size_of(device, shader), &entry->pipeline);
    tsr__free(special);
    tsr__free(infinite);
    tsr__free(kept);
    if (status != TSR_OK) {
        tsr__free(entry);
        return status;
    }
    entry->shader = shader;
    entry->spec_count = spec_count;
    memcpy(entry->spec, spec, (size_t)spec_count * sizeof *spec);
    *out = entry;
    return TSR_OK;
}

/* Returns the pointer that points to the least recently used pipeline without references, or NULL
 * if every pipeline has references. */
static tsr__pipeline **least_recently_used(device_pipelines *pipelines)
{
    tsr__pipeline **found = NULL;

    for (int i = 0; i < BUCKETS; i++)
        for (tsr__pipeline **link = &pipelines->buckets[i]; *link; link = &(*link)->next)
            if (atomic_load(&(*link)->references) == 0 &&
                (!found || (*link)->last_use < (*found)->last_use))
                found = link;
    return found;
}

/* Destroys pipelines until one more can exist within the limit. The caller holds the lock, so that
 * no pipeline without references can get one in the meantime. */
static void make_room(tsr_device *device, device_pipelines *pipelines)
{
    while (pipelines->kept >= pipelines->limit) {
        tsr__pipeline **link = least_recently_used(pipelines);
        if (!link)
            return;
        tsr__pipeline *unused = *link;
        *link = unused->next;
        device->vk.DestroyPipeline(device->handle, unused->pipeline, NULL);
        tsr__free(unused);
        pipelines->kept--;
    }
}

/* Builds a pipeline. The lock is released in the meantime, so that other threads can use existing
 * pipelines. If several threads build the same pipeline, the first one that is complete is kept. */
static tsr_status build_unlocked(tsr_device *device, device_pipelines *pipelines,
                                 tsr__shader shader, const uint32_t *spec, int spec_count,
                                 tsr__pipeline **bucket, tsr__pipeline **out)
{
    tsr__pipeline *made = NULL;

    pthread_mutex_unlock(&pipelines->lock);
    tsr_status status = build_entry(device, pipelines, shader, spec, spec_count, &made);
    pthread_mutex_lock(&pipelines->lock);
    TSR__TRY(status);
    *out = find_pipeline(*bucket, shader, spec, spec_count);
    if (*out) {
        device->vk.DestroyPipeline(device->handle, made->pipeline, NULL);
        tsr__free(made);
        return TSR_OK;
    }
    make_room(device, pipelines);
    made->next = *bucket;
    *bucket = *out = made;
    pipelines->built++;
    pipelines->kept++;
    return TSR_OK;
}

static tsr__pipeline **bucket_of(device_pipelines *pipelines, tsr__shader shader,
                                 const uint32_t *spec, int spec_count)
{
    uint32_t id = (uint32_t)shader;
    uint64_t hash = tsr__hash(TSR__HASH_START, &id, sizeof id);
    hash = tsr__hash(hash, spec, (size_t)spec_count * sizeof *spec);
    return &pipelines->buckets[hash % BUCKETS];
}

/* Asks device->admit, if there is one, whether the shader may be used; this may run its self-test.
 * The lock is released in the meantime, because the test builds pipelines, perhaps also this one.
 */
static tsr_status admit_unlocked(tsr_device *device, device_pipelines *pipelines,
                                 tsr__shader shader, const uint32_t *spec, int spec_count,
                                 bool *settled)
{
    *settled = true;
    if (!device->admit)
        return TSR_OK;
    pthread_mutex_unlock(&pipelines->lock);
    tsr_status status = device->admit(device, (int)shader, spec, spec_count, settled);
    pthread_mutex_lock(&pipelines->lock);
    return status;
}

tsr_status tsr__pipeline_get(tsr_device *device, tsr__shader shader, const uint32_t *spec,
                             int spec_count, tsr__pipeline **out)
{
    device_pipelines *pipelines;
    TSR__TRY(pipelines_of(device, &pipelines));
    tsr__pipeline **bucket = bucket_of(pipelines, shader, spec, spec_count);

    pthread_mutex_lock(&pipelines->lock);
    tsr_status status = TSR_OK;
    tsr__pipeline *entry = find_pipeline(*bucket, shader, spec, spec_count);
    bool settled = entry && entry->admitted;
    if (!settled) {
        status = admit_unlocked(device, pipelines, shader, spec, spec_count, &settled);
        entry = find_pipeline(*bucket, shader, spec, spec_count);
    }
    if (status == TSR_OK && !entry)
        status = build_unlocked(device, pipelines, shader, spec, spec_count, bucket, &entry);
    if (status == TSR_OK) {
        atomic_fetch_add(&entry->references, 1);
        entry->admitted = entry->admitted || settled;
        entry->last_use = ++pipelines->uses;
        *out = entry;
    }
    pthread_mutex_unlock(&pipelines->lock);
    return status;
}

tsr_status tsr__pipeline_create(tsr_device *device, const char *name, const uint32_t *code,
                                size_t size_bytes, const uint32_t *spec, int spec_count,
                                uint32_t subgroup_size, tsr__pipeline **out)
{
    device_pipelines *pipelines;
    TSR__TRY(pipelines_of(device, &pipelines));
    tsr__pipeline *made = tsr__calloc(1, sizeof *made);
    if (!made)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = build(device, pipelines, name, code, size_bytes, spec, spec_count,
                              subgroup_size, &made->pipeline);
    if (status != TSR_OK) {
        tsr__free(made);
        return status;
    }
    atomic_init(&made->references, 1);
    made->owner = device;
    tsr__device_retain(device);
    *out = made;
    return TSR_OK;
}

void tsr__pipeline_retain(tsr__pipeline *pipeline)
{
    atomic_fetch_add(&pipeline->references, 1);
}

void tsr__pipeline_release(tsr__pipeline *pipeline)
{
    if (!pipeline)
        return;
    tsr_device *owner = pipeline->owner;
    if (atomic_fetch_sub(&pipeline->references, 1) > 1 || !owner)
        return;
    owner->vk.DestroyPipeline(owner->handle, pipeline->pipeline, NULL);
    tsr__free(pipeline);
    tsr__device_release(owner);
}

VkPipeline tsr__pipeline_handle(const tsr__pipeline *pipeline)
{
    return pipeline->pipeline;
}

uint64_t tsr__pipelines_kept(const tsr_device *device)
{
    device_pipelines *pipelines = tsr__device_attachment(device, &pipelines_kind);
    if (!pipelines)
        return 0;
    pthread_mutex_lock(&pipelines->lock);
    uint64_t kept = pipelines->kept;
    pthread_mutex_unlock(&pipelines->lock);
    return kept;
}

void tsr__pipelines_visit(const tsr_device *device, tsr__pipeline_fn visit, void *user)
{
    device_pipelines *pipelines = tsr__device_attachment(device, &pipelines_kind);
    if (!pipelines)
        return;
    pthread_mutex_lock(&pipelines->lock);
    for (int i = 0; i < BUCKETS; i++)
        for (const tsr__pipeline *entry = pipelines->buckets[i]; entry; entry = entry->next)
            visit(user, entry->shader, entry->spec, entry->spec_count, entry->pipeline);
    pthread_mutex_unlock(&pipelines->lock);
}

uint64_t tsr__pipelines_limit(const tsr_device *device)
{
    const device_pipelines *pipelines = tsr__device_attachment(device, &pipelines_kind);
    return pipelines ? pipelines->limit : usual_limit(device);
}

tsr_status tsr__pipelines_set_limit(tsr_device *device, uint64_t limit)
{
    device_pipelines *pipelines;
    TSR__TRY(pipelines_of(device, &pipelines));
    pthread_mutex_lock(&pipelines->lock);
    pipelines->limit = limit;
    pthread_mutex_unlock(&pipelines->lock);
    return TSR_OK;
}

tsr_status tsr__pipelines_replace(tsr_device *device, tsr__shader shader, const uint32_t *code,
                                  size_t size_bytes)
{
    device_pipelines *pipelines;
    TSR__TRY(pipelines_of(device, &pipelines));
    TSR__REQUIRE(pipelines->replaced_count < MAX_REPLACED, "more than %d shaders are replaced",
                 MAX_REPLACED);
    pipelines->replaced[pipelines->replaced_count++] = (replacement){shader, code, size_bytes};
    return TSR_OK;
}

uint64_t tsr__pipelines_built(const tsr_device *device)
{
    device_pipelines *pipelines = tsr__device_attachment(device, &pipelines_kind);
    if (!pipelines)
        return 0;
    pthread_mutex_lock(&pipelines->lock);
    const uint64_t built = pipelines->built;
    pthread_mutex_unlock(&pipelines->lock);
    return built;
}

/* Disk ----------------------------------------------------------------------------------------- */

/* Returns a copy of the driver's cache, which the caller frees, or 0 bytes if the cache is
 * empty. */
static tsr_status cache_data(tsr_device *device, VkPipelineCache cache, void **out,
                             size_t *out_bytes)
{
    size_t bytes = 0;
    TSR__DEVICE_TRY(device, GetPipelineCacheData, device->handle, cache, &bytes, NULL);
    void *data = tsr__calloc(bytes, 1);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    VkResult result =
        TSR__VK(&device->vk, GetPipelineCacheData, device->handle, cache, &bytes, data);
    if (result < 0) {
        tsr__free(data);
        return tsr__device_fail(device, result, "vkGetPipelineCacheData");
    }
    *out = data;
    *out_bytes = bytes;
    return TSR_OK;
}

static void save(tsr_device *device, device_pipelines *pipelines)
{
    void *data = NULL;
    size_t bytes = 0;
    if (cache_data(device, pipelines->cache, &data, &bytes) != TSR_OK) {
        tsr__log(TSR_LOG_WARNING, "the pipeline cache cannot be saved: %s", tsr_last_error());
        return;
    }
    if (bytes > 0)
        tsr__cache_write(&pipelines->key, data, bytes);
    pipelines->saved_built = pipelines->built;
    tsr__free(data);
}

static void save_pipelines(tsr_device *device, void *attachment)
{
    device_pipelines *pipelines = attachment;
    if (atomic_load(&device->lost))
        return;
    pthread_mutex_lock(&pipelines->lock);
    if (device->disk_cache && pipelines->built != pipelines->saved_built)
        save(device, pipelines);
    pthread_mutex_unlock(&pipelines->lock);
}

void tsr__pipelines_save(tsr_device *device)
{
    device_pipelines *pipelines = tsr__device_attachment(device, &pipelines_kind);
    if (pipelines)
        save_pipelines(device, pipelines);
}

/* Statistics ----------------------------------------------------------------------------------- */

tsr_status tsr__pipelines_capture(tsr_device *device, bool on)
{
    device_pipelines *pipelines;
    TSR__TRY(pipelines_of(device, &pipelines));
    pipelines->capture = on && device->info.pipeline_statistics;
    return TSR_OK;
}

static double statistic_value(const VkPipelineExecutableStatisticKHR *statistic)
{
    switch (statistic->format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
        return statistic->value.b32 ? 1 : 0;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
        return (double)statistic->value.i64;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
        return (double)statistic->value.u64;
    default:
        return statistic->value.f64;
    }
}

#define STATISTICS_MAX 64

tsr_status tsr__pipeline_statistics(tsr_device *device, VkPipeline pipeline,
                                    tsr__statistic_fn visit, void *user)
{
    if (!device->info.pipeline_statistics || !device->vk.GetPipelineExecutableStatisticsKHR)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s reports no pipeline statistics",
                         device->info.name);
    VkPipelineExecutableInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
        .pipeline = pipeline,
    };
    VkPipelineExecutableStatisticKHR statistics[STATISTICS_MAX] = {0};
    uint32_t count = STATISTICS_MAX;
    for (uint32_t i = 0; i < count; i++)
        statistics[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    TSR__DEVICE_TRY(device, GetPipelineExecutableStatisticsKHR, device->handle, &info, &count,
                    statistics);
    for (uint32_t i = 0; i < count; i++)
        visit(user, statistics[i].name, statistic_value(&statistics[i]));
    return TSR_OK;
}
