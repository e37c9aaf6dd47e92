#include "gpu/device/coopmat.h"

#include <string.h>

#define VENDOR_INTEL 0x8086

/* AMD's own drivers list the extension on GPUs that only emulate it. RDNA 3, the first with such
 * instructions, is also the first whose 8-bit dot products take operands of mixed signs. Mesa lists
 * results of 8 columns on all of Intel's GPUs since Skylake, most of which emulate them, and of 16
 * on Xe2, whose matrix units are that wide. */
static bool only_claimed(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    bool amd = capabilities->driver == VK_DRIVER_ID_AMD_PROPRIETARY ||
               capabilities->driver == VK_DRIVER_ID_AMD_OPEN_SOURCE,
         wide = false;

    for (int i = 0; i < info->coopmat_count; i++)
        wide = wide || info->coopmats[i].n >= 16;
    return (amd && !capabilities->mixed_dot_products) || (info->vendor_id == VENDOR_INTEL && !wide);
}

/* What the kernels are made of, see shaders/gpu/matmul_coopmat.glsl. Where a subgroup may be of any
 * size, nobody knows how many of them share a workgroup. */
static bool has_needs(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    return info->coopmat && info->storage16 && info->storage8 &&
           capabilities->vulkan_memory_model && tsr__probe_subgroups(capabilities, info);
}

static bool fits(const tsr_coopmat_shape *shape, const char *element)
{
    return strcmp(shape->a, element) == 0 && strcmp(shape->b, element) == 0 &&
           strcmp(shape->c, "f32") == 0 && strcmp(shape->result, "f32") == 0 &&
           !shape->saturating && shape->subgroup_scope;
}

/* Sizes that tiles are cut into without remainder, in 16 bytes or more. */
static bool regular(uint32_t size)
{
    return size == 8 || size == 16 || size == 32;
}

/* The most work from each element loaded; -1: none fits. */
static int best_of(const tsr_device_info *info, const char *element)
{
    uint32_t most = 0;
    int best = -1;

    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = &info->coopmats[i];
        if (!fits(shape, element) || !regular(shape->m) || !regular(shape->n) || !regular(shape->k))
            continue;
        uint32_t work = shape->m * shape->n * shape->k;
        if (work > most) {
            most = work;
            best = i;
        }
    }
    return best;
}

void tsr__coopmat_choose(const tsr__capabilities *capabilities, tsr_device_info *info)
{
    info->coopmat_used = info->coopmat_bf16_used = -1;
    info->coopmat_subgroup_size = 0;
    if (!has_needs(capabilities, info) || only_claimed(capabilities, info))
        return;
    if (info->coopmat_built && info->fp16)
        info->coopmat_used = best_of(info, "f16");
    if (info->coopmat_bf16_built && info->coopmat_bf16 && capabilities->int16)
        info->coopmat_bf16_used = best_of(info, "bf16");
    /* The narrowest: Intel's matrix units take no others, and on RDNA 3 a subgroup of 64 keeps
     * every element of a and b twice as often as one of 32, and reads shared memory as much more.
     */
    if (info->coopmat_used >= 0 || info->coopmat_bf16_used >= 0)
        info->coopmat_subgroup_size = info->subgroup_size_min;
}
