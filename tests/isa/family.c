#define _DEFAULT_SOURCE /* setenv */
#include "isa/family.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/device/device.h"
#include "support/check_main.h"

/* Tries the family in a child process, because an unknown family ends the process. */
static bool knows_family(void)
{
    tsr_device *device;
    pid_t child = fork();
    int status = 0;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        tsr_status opened =
            tsr__device_open_to_compile(tsr_device_params(.cache_in_memory = true), &device);
        _exit(opened == TSR_OK ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void isa_choose_family(void)
{
    char names[128];
    char *rest = NULL;
    const char *list = getenv("RADV_FORCE_FAMILY");

    if (!list || !strchr(list, ','))
        return;
    ck_assert_uint_lt(strlen(list), sizeof names);
    memcpy(names, list, strlen(list) + 1);
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        ck_assert_int_eq(setenv("RADV_FORCE_FAMILY", name, 1), 0);
        if (knows_family())
            return;
    }
    ck_abort_msg("the driver knows none of the families %s", list);
}

bool isa_family_is_intel(void)
{
    return getenv("INTEL_STUB_GPU_PLATFORM") != NULL;
}

const char *isa_family(void)
{
    const char *name =
        getenv(isa_family_is_intel() ? "INTEL_STUB_GPU_PLATFORM" : "RADV_FORCE_FAMILY");

    ck_assert_msg(name != NULL,
                  "neither RADV_FORCE_FAMILY nor INTEL_STUB_GPU_PLATFORM names a GPU");
    return name;
}
