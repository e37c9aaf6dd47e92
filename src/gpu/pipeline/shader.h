/* The SPIR-V built into the library. The list is in shaders/meson.build; the table is generated
 * from it. */
#ifndef TSR_GPU_PIPELINE_SHADER_H
#define TSR_GPU_PIPELINE_SHADER_H

#include <stddef.h>
#include <stdint.h>

#include "shaders/shader_registry.h" /* enum tsr__shader, in the build directory */

/* How a shader reaches elements smaller than 32 bits. */
typedef enum tsr__storage {
    TSR__STORAGE_W32, /* packed in 32-bit words: works everywhere */
    TSR__STORAGE_S16, /* native 8- and 16-bit storage */
    TSR__STORAGE_COUNT
} tsr__storage;

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
