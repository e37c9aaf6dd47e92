/* The SPIR-V built into the library. The list is in shaders/meson.build; the table is generated
 * from it. */
#ifndef TSR_GPU_PIPELINE_SHADER_H
#define TSR_GPU_PIPELINE_SHADER_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/device/storage.h"
#include "shaders/shader_registry.h" /* enum tsr__shader, in the build directory */

typedef struct tsr__shader_binary {
    const char *name;
    struct {
        const uint32_t *code; /* NULL where this compiler could not build it */
        size_t size_bytes;
    } variant[TSR__STORAGE_COUNT];
} tsr__shader_binary;

/* Indexed by tsr__shader, TSR__SHADER_COUNT entries. */
extern const tsr__shader_binary tsr__shader_binaries[];

#endif
