/* A SPIR-V module that the caller supplies. This header has the numbers of the SPIR-V specification
 * (sections 2.3 and 3) that the checks use, and functions that look up instructions. Before these
 * functions are called, the lengths of all instructions must have been checked; any other part of
 * the module may still be invalid. */
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
    OP_SPEC_CONSTANT_OP = 52, /* the last opcode of constants */
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
    /* the instructions that set the workgroup size by constants: one by the decoration
     * WorkgroupSize, one by an execution mode; NULL if there is none */
    const uint32_t *size_built_in, *size_mode;
} tsr__spirv_source;

/* Returns the instruction that defines the constant `id`, or NULL if there is none. */
const uint32_t *tsr__spirv_constant(const tsr__spirv_source *source, uint32_t id);

/* Writes the value of the constant `id`. Returns false if `id` is not a 32-bit constant. If the
 * constant is computed from other constants, the value is 1, and only the driver checks the real
 * value. */
bool tsr__spirv_value(const tsr__spirv_source *source, uint32_t id, uint32_t *out);

/* Returns the number of bytes from the start of the push constants to the end of their block, or 0
 * if there is no block. Members of types that are not possible in a block count as empty. */
uint64_t tsr__spirv_push_bytes(const tsr__spirv_source *source);

#endif
