#include <string.h>

#include "tessera/base.h"

#include "tsr_config.h"

const char *tsr_version(void)
{
    return TSR__VERSION;
}

bool tsr_has(const char *feature)
{
    static const struct {
        const char *name;
        bool built;
    } features[] = {
        {"vulkan", TSR__HAVE_VULKAN},
        {"ucx", TSR__HAVE_UCX},
        {"pmix", TSR__HAVE_PMIX},
        {"shaderc", TSR__HAVE_SHADERC},
        {"cpu_kernels", TSR__HAVE_CPU_KERNELS},
    };
    for (size_t i = 0; feature && i < sizeof features / sizeof features[0]; i++)
        if (strcmp(feature, features[i].name) == 0)
            return features[i].built;
    return false;
}
