#include "gpu/device/mesa.h"

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/levels.h"

bool tsr__mesa_is_faster_wide(const char *vendor, unsigned family, unsigned model)
{
    /* Zen 5 computes vectors of 512 bits at once: models up to 0x1f are servers, 0x40 to 0x4f
     * desktops. Its mobile models compute them in halves, as Zen 4 does, and have not been
     * measured. On Intel's processors, lavapipe's stores of such vectors, lane by lane, take longer
     * than the vectors save. */
    return strcmp(vendor, "AuthenticAMD") == 0 && family == 0x1a &&
           (model <= 0x1f || (model >= 0x40 && model <= 0x4f));
}

#if defined(__x86_64__)
static bool is_faster_wide(void)
{
    const unsigned extended = 15; /* the basic family to which the extended one is added */
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
    return tsr__level_is_here(TSR__LEVEL_AVX512) &&
           tsr__mesa_is_faster_wide(vendor, family, model + (version >> 16 & 15) * 16);
}
#else
static bool is_faster_wide(void)
{
    return false;
}
#endif

void tsr__mesa_environment(void)
{
    if (getenv("LP_NATIVE_VECTOR_WIDTH") || getenv("GALLIVM_PERF") || !is_faster_wide())
        return;
    (void)setenv("LP_NATIVE_VECTOR_WIDTH", "512", 0);
    /* Mesa's cache of compiled shaders does not distinguish widths, but it does distinguish values
     * of this variable. With this value, textures are sampled in another way; shaders for computing
     * do not change. */
    (void)setenv("GALLIVM_PERF", "no_aos_sampling", 0);
}
