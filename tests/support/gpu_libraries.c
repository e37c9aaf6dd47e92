#define _GNU_SOURCE /* dl_iterate_phdr */
#include "support/gpu_libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

#include "tessera/device.h"

/* Opens a library that is already loaded once more, so that it stays loaded. */
static int keep(struct dl_phdr_info *library, size_t size, void *data)
{
    (void)size, (void)data;
    if (library->dlpi_name[0] != '\0')
        dlopen(library->dlpi_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    return 0;
}

/* The library widens lavapipe's vectors by loading the driver twice (src/gpu/device/mesa.h). The
 * driver will stay loaded here, so a child finds out which variables the library sets. */
static void widen_vectors(void)
{
    if (getenv("LP_NATIVE_VECTOR_WIDTH") || getenv("GALLIVM_PERF"))
        return;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        tsr_device_list *devices = NULL;
        const bool listed = tsr_device_list_create(&devices) == TSR_OK;
        _exit(listed && getenv("LP_NATIVE_VECTOR_WIDTH") ? 1 : 0);
    }
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
        WEXITSTATUS(status) == 1) {
        setenv("LP_NATIVE_VECTOR_WIDTH", "512", 0);
        setenv("GALLIVM_PERF", "no_aos_sampling", 0);
    }
}

void gpu_load_libraries(void)
{
    static const char *const layers[] = {"VK_LAYER_KHRONOS_validation"};
    /* A GPU's driver must not be used in a forked process if it was used before the fork. */
    if (getenv("TEST_GPU"))
        return;
    widen_vectors();
    void *loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_NODELETE);
    if (!loader)
        return;
    PFN_vkGetInstanceProcAddr find;
    *(void **)&find = dlsym(loader, "vkGetInstanceProcAddr");
    PFN_vkCreateInstance create =
        find ? (PFN_vkCreateInstance)find(NULL, "vkCreateInstance") : NULL;
    const VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .enabledLayerCount = getenv("TESSERA_VALIDATION") ? 1 : 0,
        .ppEnabledLayerNames = layers,
    };
    VkInstance instance;
    if (!create || create(&info, NULL, &instance) != VK_SUCCESS)
        return;
    dl_iterate_phdr(keep, NULL);
    PFN_vkDestroyInstance destroy = (PFN_vkDestroyInstance)find(instance, "vkDestroyInstance");
    destroy(instance, NULL);
}
