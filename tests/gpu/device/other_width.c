/* other_width PROGRAM: runs a test program with lavapipe's vectors as wide as they are not on this
 * processor (gpu/device/mesa.h): 256 bits instead of 512, or the reverse. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/device/mesa.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: other_width PROGRAM\n");
        return EXIT_FAILURE;
    }
    tsr__mesa_environment();
    const char *usual = getenv("LP_NATIVE_VECTOR_WIDTH");
    const int wide = !usual || strcmp(usual, "512") != 0;
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
