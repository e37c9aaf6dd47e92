#include "gpu/device/coopmat.h"

#include <string.h>

/* True if the device has the features that the kernels with cooperative matrices require; see
 * shaders/gpu/matmul_coopmat.glsl. The size of subgroups must be known, because the kernels divide
 * a workgroup's tile among its subgroups. */
static bool has_needs(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    return info->coopmat && !capabilities->coopmat_faulty && info->storage16 && info->storage8 &&
           info->int64 && capabilities->vulkan_memory_model &&
           tsr__probe_subgroups(capabilities, info);
}

static bool fits(const tsr_coopmat_shape *shape, const char *element)
{
    return strcmp(shape->a, element) == 0 && strcmp(shape->b, element) == 0 &&
           strcmp(shape->c, "f32") == 0 && strcmp(shape->result, "f32") == 0 &&
           !shape->saturating && shape->subgroup_scope;
}

/* True for the numbers of rows or columns of a cooperative matrix that divide a kernel's tiles
 * without a remainder, and with which a row of f16 has at least 16 bytes. */
static bool regular(uint32_t size)
{
    return size == 8 || size == 16 || size == 32;
}

/* Returns the index of the usable shape with the most multiply-adds for each instruction, because
 * it uses each loaded element most often; -1 if no shape can be used. */
static int best_of(const tsr_device_info *info, const char *element)
{
    uint32_t most = 0;
    int best = -1;

    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *shape = &tsr__facts_of(info)->coopmats[i];
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

static bool any(const tsr__coopmat2_units units[TSR__COOPMAT2_GROUPS])
{
    for (int i = 0; i < TSR__COOPMAT2_GROUPS; i++)
        if (units[i].m > 0)
            return true;
    return false;
}

/* Gives up matrices that a workgroup shares for each dtype for which no matrices of one subgroup
 * can be used: both need the same features, and the kernels with shared matrices cannot compute all
 * products, so they rely on the kernels with matrices of subgroups for the rest. */
static void choose_coopmat2(tsr__capabilities *capabilities, tsr_device_info *info)
{
    tsr__coopmat2 *shared = &capabilities->coopmat2;

    if (!capabilities->has_coopmat2 || info->coopmat_used < 0)
        memset(shared->f16, 0, sizeof shared->f16);
    if (!capabilities->has_coopmat2 || info->coopmat_bf16_used < 0)
        memset(shared->bf16, 0, sizeof shared->bf16);
    info->coopmat2 = any(shared->f16);
    info->coopmat2_bf16 = any(shared->bf16);
}

void tsr__coopmat_choose(tsr__capabilities *capabilities, tsr_device_info *info)
{
    const bool can = has_needs(capabilities, info);

    info->coopmat_used = can && info->fp16 ? best_of(info, "f16") : -1;
    info->coopmat_bf16_used =
        can && info->coopmat_bf16 && info->fp16 && capabilities->int16 ? best_of(info, "bf16") : -1;
    choose_coopmat2(capabilities, info);
    /* Use the narrowest subgroup, because Intel's matrix units support no other. On RDNA 3, a
     * subgroup of 64 stores each element of a and b twice as often as one of 32, which doubles the
     * reads of shared memory. */
    bool used = info->coopmat_used >= 0 || info->coopmat_bf16_used >= 0;
    info->coopmat_subgroup_size = used ? info->subgroup_size_min : 0;
}

bool tsr__coopmat_sums_f16(const tsr_device *device, const tsr_coopmat_shape *shape)
{
    const tsr_device_info *info = &device->info;
    for (int i = 0; i < info->coopmat_count; i++) {
        const tsr_coopmat_shape *other = &tsr__facts_of(info)->coopmats[i];
        if (other->m == shape->m && other->n == shape->n && other->subgroup_scope &&
            strcmp(other->c, "f16") == 0 && strcmp(other->result, "f16") == 0)
            return true;
    }
    return false;
}

const tsr__coopmat2_units *tsr__coopmat2_units_for(const tsr__coopmat2 *shared, tsr_dtype dtype,
                                                   uint32_t threads)
{
    const tsr__coopmat2_units *units = dtype == TSR_F16    ? shared->f16
                                       : dtype == TSR_BF16 ? shared->bf16
                                                           : NULL;
    for (int i = 0; units && i < TSR__COOPMAT2_GROUPS; i++)
        if (threads == 32U << i)
            return units[i].m > 0 ? &units[i] : NULL;
    return NULL;
}

const tsr_coopmat_shape *tsr__coopmat_used(const tsr_device *device, tsr_dtype dtype)
{
    const tsr_device_info *info = &device->info;
    const int used = dtype == TSR_F16    ? info->coopmat_used
                     : dtype == TSR_BF16 ? info->coopmat_bf16_used
                                         : -1;
    return device->storage == TSR__STORAGE_S16 && used >= 0
               ? tsr_device_coopmat_shape(&device->info, used)
               : NULL;
}
