/* The SPIR-V that is built into the library. The table of shaders is generated from the list in
 * shaders/meson.build. */
#ifndef TSR_GPU_PIPELINE_SHADER_H
#define TSR_GPU_PIPELINE_SHADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device/storage.h"
#include "shaders/shader_registry.h" /* enum tsr__shader, in the build directory */

typedef struct tsr__shader_binary {
    const char *name;
    bool for_cpu_drivers; /* only drivers for the CPU use it */
    struct {
        const uint32_t *code; /* NULL if the GLSL compiler of this build could not compile it */
        size_t size_bytes;
    } variant[TSR__STORAGE_COUNT];
} tsr__shader_binary;

/* The table of shaders. It has TSR__SHADER_COUNT entries; the index is a tsr__shader. */
extern const tsr__shader_binary tsr__shader_binaries[];

#endif
