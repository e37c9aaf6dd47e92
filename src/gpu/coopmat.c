#include "gpu/coopmat.h"

#include <string.h>

/* AMD's own drivers list the extension on GPUs that only emulate it. RDNA 3, the first with such
 * instructions, is also the first whose 8-bit dot products take operands of mixed signs. */
static bool only_claimed(const tsr__capabilities *capabilities)
{
    bool amd = capabilities->driver == VK_DRIVER_ID_AMD_PROPRIETARY ||
               capabilities->driver == VK_DRIVER_ID_AMD_OPEN_SOURCE;

    return amd && !capabilities->mixed_dot_products;
}

/* What the kernels are made of, see shaders/matmul_coopmat.comp. Where a subgroup's size cannot be
 * demanded, nobody knows how many of them share a workgroup. */
static bool has_needs(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    return info->coopmat && info->coopmat_built && info->fp16 && info->storage16 &&
           info->storage8 && capabilities->vulkan_memory_model &&
           capabilities->subgroup_size_control && capabilities->subgroup_sizes_in_compute &&
           capabilities->full_subgroups;
}

static bool fits(const tsr_coopmat_shape *shape)
{
    return strcmp(shape->a, "f16") == 0 && strcmp(shape->b, "f16") == 0 &&
           strcmp(shape->c, "f32") == 0 && strcmp(shape->result, "f32") == 0 &&
           !shape->saturating && shape->subgroup_scope;
}

/* Sizes that tiles are cut into without remainder, in 16 bytes or more. */
static bool regular(uint32_t size)
{
    return size == 8 || size == 16 || size == 32;
}

void tsr__coopmat_choose(const tsr__capabilities *capabilities, tsr_device_info *info)
{
    uint32_t best = 0;

    info->coopmat_used = -1;
    info->coopmat_subgroup_size = 0;
    if (!has_needs(capabilities, info) || only_claimed(capabilities))
        return;
    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = &info->coopmats[i];
        if (!fits(shape) || !regular(shape->m) || !regular(shape->n) || !regular(shape->k))
            continue;
        /* The most work from each element loaded. */
        uint32_t work = shape->m * shape->n * shape->k;
        if (work > best) {
            best = work;
            info->coopmat_used = i;
        }
    }
    if (info->coopmat_used < 0)
        return;
    /* The narrowest: Intel's matrix units take no others, and on RDNA 3 a subgroup of 64 keeps
     * every element of a and b twice as often as one of 32, and reads shared memory as much more.
     */
    info->coopmat_subgroup_size = info->subgroup_size_min;
}
