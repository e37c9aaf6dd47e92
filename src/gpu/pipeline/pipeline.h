/* Compute pipelines by (shader, specialization constants): built on first use, kept in memory, and
 * cached on disk by the driver.
 *
 * GPUs keep every pipeline for the device's life. CPU drivers compile each one to machine code of
 * about 3 MB, and their kernels for matrix products are specialised for the shape: there, once more
 * than tsr__pipelines_limit() exist, each new one replaces the least recently used one that no
 * unfinished batch uses. More than the limit exist only while unfinished batches use them all. */
#ifndef TSR_GPU_PIPELINE_PIPELINE_H
#define TSR_GPU_PIPELINE_PIPELINE_H

#include "gpu/device/device.h"
#include "gpu/pipeline/shader.h"

#define TSR__SPEC_MAX 24  /* specialization constants of a pipeline */
#define TSR__PUSH_MAX 128 /* bytes of push constants; every device has this many */

/* The layout that all pipelines of the device share: TSR__PUSH_MAX bytes of push constants, no
 * descriptors. A pipeline must have been built. */
VkPipelineLayout tsr__pipelines_layout(const tsr_device *device);

typedef struct tsr__pipeline tsr__pipeline;

/* The pipeline of a built-in shader in the device's storage variant. It exists until the caller has
 * released it. TSR_ERR_UNSUPPORTED if this build has no such shader. */
tsr_status tsr__pipeline_get(tsr_device *device, tsr__shader shader, const uint32_t *spec,
                             int spec_count, tsr__pipeline **out);

/* A pipeline of the caller's own SPIR-V, which is destroyed with its last reference. Uses the same
 * driver cache. If subgroup_size is not 0, all subgroups are full and have this size; the caller
 * has checked that the device supports that. */
tsr_status tsr__pipeline_create(tsr_device *device, const char *name, const uint32_t *code,
                                size_t size_bytes, const uint32_t *spec, int spec_count,
                                uint32_t subgroup_size, tsr__pipeline **out);

/* Any thread. */
void tsr__pipeline_retain(tsr__pipeline *pipeline);
/* Any thread. The pipeline may be destroyed at any time after this. NULL is fine. */
void tsr__pipeline_release(tsr__pipeline *pipeline);
VkPipeline tsr__pipeline_handle(const tsr__pipeline *pipeline);

/* Statistics the driver reports of a pipeline (VK_KHR_pipeline_executable_properties), one call of
 * `visit` each. Devices without: TSR_ERR_UNSUPPORTED. Only for pipelines built while
 * tsr__pipelines_capture is on. */
typedef void (*tsr__statistic_fn)(void *user, const char *name, double value);
tsr_status tsr__pipelines_capture(tsr_device *device, bool on);
tsr_status tsr__pipeline_statistics(tsr_device *device, VkPipeline pipeline,
                                    tsr__statistic_fn visit, void *user);

/* Number of pipelines that the driver has built since the device was opened. */
uint64_t tsr__pipelines_built(const tsr_device *device);
/* Those of them that still exist. */
uint64_t tsr__pipelines_kept(const tsr_device *device);

#define TSR__CPU_PIPELINES 256
/* How many pipelines of built-in shaders are kept: TSR__CPU_PIPELINES on CPU drivers, UINT64_MAX on
 * GPUs. Tests set it; a lower limit takes effect when the next pipeline is built. */
uint64_t tsr__pipelines_limit(const tsr_device *device);
tsr_status tsr__pipelines_set_limit(tsr_device *device, uint64_t limit);

#endif
