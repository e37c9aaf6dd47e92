#include "gpu/device/mesa.h"

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/alloc.h"
#include "base/instruction_sets.h"
#include "gpu/device/probe.h"

bool tsr__mesa_is_faster_wide(const char *vendor, unsigned family, unsigned model)
{
    /* Zen 5 computes vectors of 512 bits at once: models up to 0x1f are servers, 0x40 to 0x4f
     * desktops. The mobile models of Zen 5 compute such a vector as two of 256 bits, as Zen 4 does,
     * and have not been measured. On Intel's processors, lavapipe is slower with vectors of 512
     * bits, because it stores them lane by lane. */
    return strcmp(vendor, "AuthenticAMD") == 0 && family == 0x1a &&
           (model <= 0x1f || (model >= 0x40 && model <= 0x4f));
}

#if defined(__x86_64__)
static bool is_faster_wide(void)
{
    const unsigned extended = 15; /* only to this basic family the extended family is added */
    unsigned most, version, ebx, ecx, edx;
    char vendor[13] = "";
    if (!__get_cpuid(0, &most, &ebx, &ecx, &edx))
        return false;
    memcpy(vendor, &ebx, 4);
    memcpy(vendor + 4, &edx, 4);
    memcpy(vendor + 8, &ecx, 4);
    if (!__get_cpuid(1, &version, &ebx, &ecx, &edx))
        return false;
    const unsigned basic = version >> 8 & 15, model = version >> 4 & 15,
                   family = basic + (basic == extended ? version >> 20 & 255 : 0);
    return tsr__instruction_set_is_supported(TSR__INSTRUCTIONS_AVX512) &&
           tsr__mesa_is_faster_wide(vendor, family, model + (version >> 16 & 15) * 16);
}
#else
static bool is_faster_wide(void)
{
    return false;
}
#endif

unsigned tsr__mesa_version(const char *driver_info)
{
    static const char mesa[] = "Mesa ";
    if (strncmp(driver_info, mesa, sizeof mesa - 1) != 0)
        return 0;
    char *end;
    const unsigned long major = strtoul(driver_info + sizeof mesa - 1, &end, 10);
    if (*end != '.')
        return 0;
    const unsigned long minor = strtoul(end + 1, NULL, 10);
    return major < 100 && minor < 100 ? (unsigned)(major * 100 + minor) : 0;
}

bool tsr__mesa_takes_phases(const char *driver_info)
{
    /* Before a barrier, the driver stores each value that is used later, at the place where it is
     * computed. Newer versions of LLVM take up to minutes to compile such stores after thousands of
     * loads. */
    return tsr__mesa_version(driver_info) <= TSR__MESA_OF_DEBIAN_12;
}

/* Finds out whether all devices of the instance are CPUs, and one of them is a lavapipe that can
 * have wider vectors. Drivers of GPUs, which take long to load, are not loaded again. */
static tsr_status find_narrow_lavapipe(const tsr__instance *instance, bool *found)
{
    VkPhysicalDevice *devices;
    uint32_t count;
    bool all_cpus = true, narrow = false;
    TSR__TRY(tsr__probe_enumerate(instance, &count, &devices));
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceDriverProperties driver = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
        };
        VkPhysicalDeviceProperties2 properties = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
            .pNext = &driver,
        };
        instance->vk.GetPhysicalDeviceProperties2(devices[i], &properties);
        all_cpus = all_cpus && properties.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
        narrow = narrow || (driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE &&
                            /* Vectors of 512 bits are used with this version of Mesa only: 25.0
                             * takes minutes to compile some kernels for them, and the compiler of
                             * 26.2 writes beyond the end of an array. */
                            tsr__mesa_version(driver.driverInfo) == TSR__MESA_OF_DEBIAN_12);
    }
    tsr__free(devices);
    *found = all_cpus && narrow;
    return TSR_OK;
}

tsr_status tsr__mesa_widen(const tsr__instance *instance, bool *widened)
{
    *widened = false;
    if (getenv("LP_NATIVE_VECTOR_WIDTH") || getenv("GALLIVM_PERF") || !is_faster_wide())
        return TSR_OK;
    TSR__TRY(find_narrow_lavapipe(instance, widened));
    if (!*widened)
        return TSR_OK;
    (void)setenv("LP_NATIVE_VECTOR_WIDTH", "512", 0);
    /* Mesa's cache of compiled shaders would return shaders compiled for narrower vectors. It keeps
     * shaders compiled with different values of GALLIVM_PERF apart, so set that variable, too. This
     * value changes how textures are sampled, but no compute shader. */
    (void)setenv("GALLIVM_PERF", "no_aos_sampling", 0);
    return TSR_OK;
}
