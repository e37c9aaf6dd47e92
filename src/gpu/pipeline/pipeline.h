/* Compute pipelines. A pipeline is identified by its shader and its specialization constants.
 * Pipelines are built when they are first used and kept in memory; the driver caches them on disk.
 *
 * On GPUs, every pipeline is kept until the device is destroyed. On CPU drivers there is a limit,
 * tsr__pipelines_limit(), because each pipeline is machine code of about 3 MB, and there may be
 * many: kernels for matrix products have one for each shape of the product. At the limit, each new
 * pipeline replaces the least recently used one that no unfinished batch uses. The limit is
 * exceeded only while unfinished batches use all pipelines. */
#ifndef TSR_GPU_PIPELINE_PIPELINE_H
#define TSR_GPU_PIPELINE_PIPELINE_H

#include "gpu/device/device.h"
#include "gpu/pipeline/shader.h"

#define TSR__SPEC_MAX 24  /* the largest number of specialization constants */
#define TSR__PUSH_MAX 128 /* the largest size of push constants, which every device supports */

/* Returns the layout that all pipelines of the device share: TSR__PUSH_MAX bytes of push constants,
 * and no descriptors. At least one pipeline must have been built. */
VkPipelineLayout tsr__pipelines_layout(const tsr_device *device);

typedef struct tsr__pipeline tsr__pipeline;

/* Returns the pipeline of a built-in shader, in the device's storage variant. The caller gets a
 * reference and must release it. Returns TSR_ERR_UNSUPPORTED if this build has no such shader, or
 * if the shader failed its self-test. */
tsr_status tsr__pipeline_get(tsr_device *device, tsr__shader shader, const uint32_t *spec,
                             int spec_count, tsr__pipeline **out);

/* True unless tsr__pipeline_get would refuse the shader because of its self-test. This call runs
 * the test if necessary. It is for operations that can use another shader instead. Of `spec`, only
 * the constants that are dtypes matter, because a shader is tested once for each dtype. */
static inline bool tsr__shader_admitted(tsr_device *device, tsr__shader shader,
                                        const uint32_t *spec, int spec_count)
{
    bool settled;
    return !device->admit ||
           device->admit(device, (int)shader, spec, spec_count, &settled) == TSR_OK;
}

/* Creates a pipeline from the caller's own SPIR-V. The pipeline uses the same driver cache as
 * others, and is destroyed when its last reference is released. If subgroup_size is not 0, all
 * subgroups are full and have this size; the caller must have checked that the device supports
 * that. */
tsr_status tsr__pipeline_create(tsr_device *device, const char *name, const uint32_t *code,
                                size_t size_bytes, const uint32_t *spec, int spec_count,
                                uint32_t subgroup_size, tsr__pipeline **out);

/* Thread-safe. */
void tsr__pipeline_retain(tsr__pipeline *pipeline);
/* Thread-safe. After this call the caller must not use the pipeline any more. `pipeline` may be
 * NULL. */
void tsr__pipeline_release(tsr__pipeline *pipeline);
VkPipeline tsr__pipeline_handle(const tsr__pipeline *pipeline);

/* Writes the pipelines built since the last write to the disk cache, as closing the device does. If
 * the file cannot be written, that is logged. */
void tsr__pipelines_save(tsr_device *device);

/* tsr__pipelines_capture makes the driver keep statistics of the pipelines that are built while it
 * is on. tsr__pipeline_statistics calls `visit` for each statistic of such a pipeline
 * (VK_KHR_pipeline_executable_properties). It returns TSR_ERR_UNSUPPORTED if the device has no
 * statistics. */
typedef void (*tsr__statistic_fn)(void *user, const char *name, double value);
tsr_status tsr__pipelines_capture(tsr_device *device, bool on);
tsr_status tsr__pipeline_statistics(tsr_device *device, VkPipeline pipeline,
                                    tsr__statistic_fn visit, void *user);

/* The number of pipelines built since the device was opened. */
uint64_t tsr__pipelines_built(const tsr_device *device);
/* The number of pipelines of built-in shaders that exist now. */
uint64_t tsr__pipelines_kept(const tsr_device *device);

/* Calls `visit` for every pipeline of a built-in shader that exists. For tests. */
typedef void (*tsr__pipeline_fn)(void *user, tsr__shader shader, const uint32_t *spec,
                                 int spec_count, VkPipeline pipeline);
void tsr__pipelines_visit(const tsr_device *device, tsr__pipeline_fn visit, void *user);

#define TSR__CPU_PIPELINES 256
/* The largest number of pipelines of built-in shaders that are kept: TSR__CPU_PIPELINES on CPU
 * drivers, UINT64_MAX on GPUs. Tests change it; a lower limit takes effect when the next pipeline
 * is built. */
uint64_t tsr__pipelines_limit(const tsr_device *device);
tsr_status tsr__pipelines_set_limit(tsr_device *device, uint64_t limit);

/* Makes later pipelines of this shader use the SPIR-V at `code` instead of the built-in one, for
 * tests that break a kernel on purpose. At most four shaders are replaced. `code` must remain
 * valid. Not thread-safe. */
tsr_status tsr__pipelines_replace(tsr_device *device, tsr__shader shader, const uint32_t *code,
                                  size_t size_bytes);

#endif
