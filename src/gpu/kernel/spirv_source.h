/* A SPIR-V module from outside the library: the numbers of the SPIR-V specification (sections 2.3
 * and 3) that the checks use, and look-ups in the module. Look-ups require that the lengths of all
 * instructions have been checked; everything else in the module may still be wrong. */
#ifndef TSR_GPU_KERNEL_SPIRV_SOURCE_H
#define TSR_GPU_KERNEL_SPIRV_SOURCE_H

#include "tessera/device.h"

#define TSR__SPIRV_HEADER 5 /* words before the first instruction */

enum {
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_VECTOR = 23,
    OP_TYPE_MATRIX = 24,
    OP_TYPE_ARRAY = 28,
    OP_TYPE_STRUCT = 30,
    OP_TYPE_POINTER = 32,
    OP_CONSTANT_TRUE = 41, /* the first opcode of constants */
    OP_CONSTANT = 43,
    OP_CONSTANT_COMPOSITE = 44,
    OP_CONSTANT_NULL = 46,
    OP_SPEC_CONSTANT = 50,
    OP_SPEC_CONSTANT_COMPOSITE = 51,
    OP_SPEC_CONSTANT_OP = 52, /* the last one */
    OP_FUNCTION = 54,
    OP_FUNCTION_END = 56,
    OP_VARIABLE = 59,
    OP_DECORATE = 71,
    OP_MEMBER_DECORATE = 72,
    OP_EXECUTION_MODE_ID = 331
};
enum { MODEL_GL_COMPUTE = 5, MODE_LOCAL_SIZE = 17, MODE_LOCAL_SIZE_ID = 38 };
enum {
    DECORATION_SPEC_ID = 1,
    DECORATION_ROW_MAJOR = 4,
    DECORATION_ARRAY_STRIDE = 6,
    DECORATION_MATRIX_STRIDE = 7,
    DECORATION_BUILT_IN = 11,
    DECORATION_BINDING = 33,
    DECORATION_SET = 34,
    DECORATION_OFFSET = 35,
    BUILT_IN_WORKGROUP_SIZE = 25
};
enum { STORAGE_PUSH_CONSTANT = 9 };

typedef struct tsr__spirv_source {
    const tsr_device_info *info;
    const char *name;
    const uint32_t *words;
    uint64_t count;
    const uint32_t *constants;
    int constant_count;
    bool in_function;
    bool has_main;
    uint32_t main_id;
    /* The instructions that set the workgroup size to constants; NULL: there is none. */
    const uint32_t *size_built_in, *size_mode;
} tsr__spirv_source;

/* The instruction of the constant with this id; NULL: there is none. */
const uint32_t *tsr__spirv_constant(const tsr__spirv_source *source, uint32_t id);

/* Gives the value of a constant. False if the id is not that of a 32-bit constant. A constant that
 * is computed from others counts as 1; the driver checks it. */
bool tsr__spirv_value(const tsr__spirv_source *source, uint32_t id, uint32_t *out);

/* Bytes from the start of the push constants to the end of their block; 0: there is no block.
 * Members of a type that a block cannot contain count as empty. */
uint64_t tsr__spirv_push_bytes(const tsr__spirv_source *source);

#endif
