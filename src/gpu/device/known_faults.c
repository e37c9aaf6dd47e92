#include "gpu/device/known_faults.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/device/vendors.h"

/* Versions as drivers encode them. */
#define AMD_VERSION(major, minor, patch) VK_MAKE_VERSION(major, minor, patch)
#define INTEL_WINDOWS_VERSION(major, minor) ((uint32_t)(major) << 14 | (minor))
#define MOLTENVK_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))

/* Conditions ----------------------------------------------------------------------------------- */

/* True for AMD's GPUs before RDNA 3, the first generation with matrix instructions. RDNA 3 is also
 * the first whose 8-bit dot products take a signed and an unsigned operand, which drivers report
 * correctly. */
static bool before_rdna3(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    return info->coopmat && !capabilities->mixed_dot_products;
}

static bool integrated_with_coopmat(const tsr__capabilities *capabilities,
                                    const tsr_device_info *info)
{
    (void)capabilities;
    return info->coopmat && info->type == TSR_DEVICE_INTEGRATED;
}

/* True for Intel's GPUs before Xe2. Xe2 has the first matrix units that are worth using; their
 * results have 16 columns. Drivers list matrices with results of 8 columns for every GPU since
 * Skylake. */
static bool before_xe2(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    (void)capabilities;
    for (int i = 0; i < info->coopmat_count; i++)
        if (tsr__facts_of(info)->coopmats[i].n >= 16)
            return false;
    return info->coopmat_count > 0;
}

static bool with_coopmat(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    (void)capabilities;
    return info->coopmat;
}

static bool integrated(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    (void)capabilities;
    return info->type == TSR_DEVICE_INTEGRATED;
}

/* All subgroups of AMD's GCN have 64 invocations; its successor RDNA also has subgroups of 32. */
static bool discrete_gcn(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    (void)capabilities;
    return info->type == TSR_DEVICE_DISCRETE && info->subgroup_size_min == 64;
}

static bool claims_wide_subgroups(const tsr__capabilities *capabilities,
                                  const tsr_device_info *info)
{
    (void)capabilities;
    return info->subgroup_size > 32 || info->subgroup_size_max > 32;
}

static bool imports_host_memory(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    (void)capabilities;
    return info->external_memory_host;
}

/* True if the driver loads and stores f16 but does not compute with it. Drivers for CPUs are like
 * that if the processor has no instructions for f16. */
static bool stores_halves_only(const tsr__capabilities *capabilities, const tsr_device_info *info)
{
    (void)capabilities;
    return info->storage16 && !info->fp16;
}

/* The table ------------------------------------------------------------------------------------ */

/* Three known faults need no row in this table: RADV before Mesa 25.3 is slow if the padding of
 * rows in shared memory is not a multiple of 16 bytes, but the library's padding,
 * TSR_MM_COOPMAT_PAD, is a multiple (kernels/coopmat.c). Adreno's driver cannot build some
 * pipelines (ggml-org/llama.cpp#28635), which the self-test finds. Another project does not use
 * attention by cooperative matrices on Turing (ggml-org/llama.cpp#19290); this library does if its
 * self-test passes. */
static const tsr__known_fault table[] = {
    {.name = "amd-emulated-coopmat",
     .description = "lists cooperative matrices although the GPU has no matrix units",
     .source = "ggml-org/llama.cpp#11074",
     .drivers = {VK_DRIVER_ID_AMD_PROPRIETARY, VK_DRIVER_ID_AMD_OPEN_SOURCE},
     .condition = before_rdna3,
     .effect = TSR__FAULT_NO_COOPMAT},
    {.name = "amd-coopmat-query",
     .description = "crashes when asked for the shapes of cooperative matrices of integrated GPUs",
     .source = "ggml-org/llama.cpp#22750, GPUOpen-Drivers/AMDVLK#422",
     .drivers = {VK_DRIVER_ID_AMD_PROPRIETARY},
     .first_version = AMD_VERSION(2, 0, 388),
     .condition = integrated_with_coopmat,
     .effect = TSR__FAULT_NO_COOPMAT_QUERY},
    {.name = "amd-apu-timeout",
     .description = "resets integrated GPUs that are busy with a batch for 2 seconds",
     .source = "ggml-org/llama.cpp#21724, #25240",
     .drivers = {VK_DRIVER_ID_MESA_RADV, VK_DRIVER_ID_AMD_OPEN_SOURCE,
                 VK_DRIVER_ID_AMD_PROPRIETARY},
     .condition = integrated,
     .effect = TSR__FAULT_SHORT_WORK},
    {.name = "amd-gcn-timeout",
     .description = "resets GPUs of GCN that are busy with a batch for 2 seconds",
     .source = "ggml-org/llama.cpp#26813",
     .drivers = {VK_DRIVER_ID_MESA_RADV, VK_DRIVER_ID_AMD_OPEN_SOURCE,
                 VK_DRIVER_ID_AMD_PROPRIETARY},
     .condition = discrete_gcn,
     .effect = TSR__FAULT_SHORT_WORK},
    {.name = "anv-emulated-coopmat",
     .description = "lists cooperative matrices that it emulates, or that are slower than none",
     .source = "ggml-org/llama.cpp#10597",
     .drivers = {VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA},
     .condition = before_xe2,
     .effect = TSR__FAULT_NO_COOPMAT},
    {.name = "intel-windows-slow-coopmat",
     .description = "computes some products with cooperative matrices up to 1000 times as slowly",
     .source = "ggml-org/llama.cpp#24404",
     .drivers = {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS},
     .condition = before_xe2,
     .effect = TSR__FAULT_NO_COOPMAT},
    {.name = "intel-windows-g31-coopmat",
     .description = "loses the device when Battlemage G31 multiplies cooperative matrices",
     .source = "IGCIT/Intel-GPU-Community-Issue-Tracker-IGCIT#1487",
     .drivers = {VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS},
     .vendor_id = TSR__VENDOR_INTEL,
     .first_device = 0xe220,
     .last_device = 0xe223,
     .first_version = INTEL_WINDOWS_VERSION(101, 8826),
     .condition = with_coopmat,
     .effect = TSR__FAULT_NO_COOPMAT},
    {.name = "lavapipe-halves",
     .description = "aborts when it compiles conversions of half floats, on processors without "
                    "instructions for them",
     .source = "Tencent/ncnn#4233",
     .drivers = {VK_DRIVER_ID_MESA_LLVMPIPE},
     .condition = stores_halves_only,
     .effect = TSR__FAULT_NO_HALVES},
    {.name = "moltenvk-amd-subgroups",
     .description = "reports subgroups of 64 on AMD's GPUs, where Metal uses 32",
     .source = "KhronosGroup/MoltenVK#2756, ggml-org/llama.cpp#20029",
     .drivers = {VK_DRIVER_ID_MOLTENVK},
     .vendor_id = TSR__VENDOR_AMD,
     .condition = claims_wide_subgroups,
     .effect = TSR__FAULT_SUBGROUPS_OF_32},
    {.name = "moltenvk-host-import",
     .description = "lists the import of host memory, but refuses buffers for it",
     .source = "KhronosGroup/MoltenVK#2806, #2622",
     .drivers = {VK_DRIVER_ID_MOLTENVK},
     .last_version = MOLTENVK_VERSION(1, 4, 2),
     .condition = imports_host_memory,
     .effect = TSR__FAULT_NO_HOST_IMPORT},
};

static const char *const effect_texts[] = {
    [TSR__FAULT_NO_COOPMAT] = "cooperative matrices are not used",
    [TSR__FAULT_NO_COOPMAT_QUERY] = "cooperative matrices are not used",
    [TSR__FAULT_SUBGROUPS_OF_32] = "subgroups count as 32 invocations of no guaranteed size",
    [TSR__FAULT_NO_HOST_IMPORT] = "memory of the host is not imported",
    [TSR__FAULT_NO_HALVES] = "f16 is read as words and widened by integers",
    [TSR__FAULT_SHORT_WORK] = "batches and dispatches have less work",
};
_Static_assert(sizeof effect_texts / sizeof *effect_texts == TSR__FAULT_EFFECTS,
               "every effect has a text");
_Static_assert(sizeof table / sizeof *table <= TSR__MAX_KNOWN_FAULTS, "every list of faults fits");

const tsr__known_fault *tsr__known_fault_at(int index)
{
    return index >= 0 && (size_t)index < sizeof table / sizeof *table ? &table[index] : NULL;
}

static bool has_driver(const tsr__known_fault *fault, VkDriverId driver)
{
    for (size_t i = 0; i < sizeof fault->drivers / sizeof *fault->drivers; i++)
        if (fault->drivers[i] != 0 && fault->drivers[i] == driver)
            return true;
    return false;
}

static bool between(uint32_t value, uint32_t first, uint32_t last)
{
    return value >= first && (last == 0 || value <= last);
}

bool tsr__known_fault_matches(const tsr__known_fault *fault, const tsr__capabilities *capabilities,
                              const tsr_device_info *info)
{
    return has_driver(fault, capabilities->driver) &&
           (fault->vendor_id == 0 || fault->vendor_id == info->vendor_id) &&
           between(info->device_id, fault->first_device, fault->last_device) &&
           between(info->driver_version, fault->first_version, fault->last_version) &&
           (!fault->condition || fault->condition(capabilities, info));
}

/* Applying the table
 * ---------------------------------------------------------------------------------- */

static bool wanted(void)
{
    const char *value = getenv("TESSERA_KNOWN_FAULTS");
    return !value || strcmp(value, "0") != 0;
}

bool tsr__known_faults_demand(const tsr__capabilities *capabilities, const tsr_device_info *info,
                              tsr__fault_effect effect)
{
    const tsr__known_fault *fault;

    if (!wanted())
        return false;
    for (int i = 0; (fault = tsr__known_fault_at(i)) != NULL; i++)
        if (fault->effect == effect && tsr__known_fault_matches(fault, capabilities, info))
            return true;
    return false;
}

static void apply_effect(tsr__fault_effect effect, tsr__capabilities *capabilities,
                         tsr_device_info *info)
{
    switch (effect) {
    case TSR__FAULT_NO_COOPMAT_QUERY:
        info->coopmat = info->coopmat_bf16 = false;
        break;
    case TSR__FAULT_NO_COOPMAT:
        capabilities->coopmat_faulty = true;
        break;
    case TSR__FAULT_SUBGROUPS_OF_32:
        info->subgroup_size = info->subgroup_size_min = info->subgroup_size_max = 32;
        capabilities->full_subgroups = false;
        break;
    case TSR__FAULT_NO_HOST_IMPORT:
        info->external_memory_host = false;
        capabilities->host_import_alignment = 0;
        break;
    case TSR__FAULT_NO_HALVES:
        info->storage16 = false;
        capabilities->no_halves = true;
        break;
    case TSR__FAULT_SHORT_WORK:
        capabilities->short_work = true;
        break;
    case TSR__FAULT_EFFECTS:
        break;
    }
}

void tsr__known_faults_apply(tsr__capabilities *capabilities, tsr__device_facts *facts)
{
    tsr_device_info *info = &facts->info;
    const tsr__known_fault *found[sizeof table / sizeof *table];
    const tsr__known_fault *fault;
    int count = 0;

    /* Find all faults before applying the first one, because its effect changes what the conditions
     * of others read. */
    for (int i = 0; wanted() && (fault = tsr__known_fault_at(i)) != NULL; i++)
        if (tsr__known_fault_matches(fault, capabilities, info))
            found[count++] = fault;
    for (int i = 0; i < count; i++) {
        facts->known_faults[i] = (tsr__fault_info){.name = found[i]->name,
                                                   .description = found[i]->description,
                                                   .effect = effect_texts[found[i]->effect],
                                                   .source = found[i]->source};
        apply_effect(found[i]->effect, capabilities, info);
    }
    facts->known_fault_count = count;
}
