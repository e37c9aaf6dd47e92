/* Compute pipelines by (shader, specialization constants): built on first use, kept for the
 * device's life, cached on disk. */
#ifndef TSR_GPU_PIPELINE_PIPELINE_H
#define TSR_GPU_PIPELINE_PIPELINE_H

#include "gpu/device/device.h"

tsr_status tsr__pipelines_create(tsr_device *device, bool disk_cache, tsr__pipelines **out);
void tsr__pipelines_destroy(tsr_device *device, tsr__pipelines *pipelines);

/* The layout all pipelines share: 128 bytes of push constants, no descriptors. */
VkPipelineLayout tsr__pipelines_layout(const tsr__pipelines *pipelines);

/* The pipeline of a built-in shader in the device's storage variant. TSR_ERR_UNSUPPORTED where this
 * build has no such shader. */
tsr_status tsr__pipeline_get(tsr_device *device, tsr__shader shader, const uint32_t *spec,
                             int spec_count, VkPipeline *out);

/* A pipeline of the caller's own SPIR-V, which the caller destroys. Uses the same driver cache.
 * `subgroup_size`, unless 0, is demanded of the driver, and that all subgroups are full: the caller
 * knows that the device takes it. */
tsr_status tsr__pipeline_build(tsr_device *device, const char *name, const uint32_t *code,
                               size_t size_bytes, const uint32_t *spec, int spec_count,
                               uint32_t subgroup_size, VkPipeline *out);

/* Statistics the driver reports of a pipeline (VK_KHR_pipeline_executable_properties), one call of
 * `visit` each. Devices without: TSR_ERR_UNSUPPORTED. Only for pipelines built while
 * tsr__pipelines_capture is on. */
typedef void (*tsr__statistic_fn)(void *user, const char *name, double value);
void tsr__pipelines_capture(tsr_device *device, bool on);
tsr_status tsr__pipeline_statistics(tsr_device *device, VkPipeline pipeline,
                                    tsr__statistic_fn visit, void *user);

/* Pipelines built since the device was opened, by the driver and not found in memory. */
uint64_t tsr__pipelines_built(const tsr_device *device);

void tsr__pipelines_save(tsr_device *device);

#endif
