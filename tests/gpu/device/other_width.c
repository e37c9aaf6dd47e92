/* other_width PROGRAM: runs a test program with lavapipe's vectors as wide as they are not on this
 * processor (src/gpu/device/mesa.h): 256 bits instead of 512, or the reverse. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tessera/device.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: other_width PROGRAM\n");
        return EXIT_FAILURE;
    }
    /* Listing the devices loads the driver, which reads LP_NATIVE_VECTOR_WIDTH. If the library
     * then sets this variable, it must load the driver again. */
    const bool is_set = getenv("LP_NATIVE_VECTOR_WIDTH");
    tsr_device_list *devices = NULL;
    if (tsr_device_list_create(&devices)) {
        fprintf(stderr, "other_width: %s\n", tsr_last_error());
        return EXIT_FAILURE;
    }
    const char *usual = getenv("LP_NATIVE_VECTOR_WIDTH");
    if (usual && !is_set && devices->count > 0 &&
        devices->devices[0]->subgroup_size != (uint32_t)atoi(usual) / 32) {
        fprintf(stderr, "other_width: the vectors do not have %s bits\n", usual);
        return EXIT_FAILURE;
    }
    tsr_device_list_destroy(&devices);
    const bool wide = !usual || strcmp(usual, "512") != 0;
    if (setenv("LP_NATIVE_VECTOR_WIDTH", wide ? "512" : "256", 1) ||
        setenv("GALLIVM_PERF", wide ? "no_aos_sampling" : "", 1)) {
        perror("other_width");
        return EXIT_FAILURE;
    }
    printf("# vectors of %s bits\n", getenv("LP_NATIVE_VECTOR_WIDTH"));
    fflush(stdout);
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return EXIT_FAILURE;
}
