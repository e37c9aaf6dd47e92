/* Reads the instructions of a SPIR-V module, and has the numbers of the SPIR-V specification
 * (sections 2.3 and 3) that this folder uses. */
#ifndef TSR_GPU_SPIRV_READER_H
#define TSR_GPU_SPIRV_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TSR__SPIRV_HEADER 5 /* words before the first instruction */

enum {
    OP_NOP = 0,
    OP_UNDEF = 1,
    OP_NAME = 5,
    OP_MEMBER_NAME = 6,
    OP_LINE = 8,
    OP_ENTRY_POINT = 15,
    OP_EXECUTION_MODE = 16,
    OP_CAPABILITY = 17,
    OP_TYPE_BOOL = 20,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_VECTOR = 23,
    OP_TYPE_MATRIX = 24,
    OP_TYPE_ARRAY = 28,
    OP_TYPE_STRUCT = 30,
    OP_TYPE_POINTER = 32,
    OP_CONSTANT_TRUE = 41, /* the first opcode of constants */
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_CONSTANT_COMPOSITE = 44,
    OP_CONSTANT_NULL = 46,
    OP_SPEC_CONSTANT_TRUE = 48,
    OP_SPEC_CONSTANT_FALSE = 49,
    OP_SPEC_CONSTANT = 50,
    OP_SPEC_CONSTANT_COMPOSITE = 51,
    OP_SPEC_CONSTANT_OP = 52, /* the last opcode of constants */
    OP_FUNCTION = 54,
    OP_FUNCTION_END = 56,
    OP_VARIABLE = 59,
    OP_STORE = 62,
    OP_COPY_MEMORY = 63,
    OP_COPY_MEMORY_SIZED = 64,
    OP_DECORATE = 71,
    OP_MEMBER_DECORATE = 72,
    OP_COPY_OBJECT = 83,
    OP_IMAGE_WRITE = 99,
    OP_BITCAST = 124,
    OP_S_NEGATE = 126,
    OP_I_ADD = 128,
    OP_I_SUB = 130,
    OP_I_MUL = 132,
    OP_U_DIV = 134,
    OP_U_MOD = 137,
    OP_LOGICAL_EQUAL = 164,
    OP_LOGICAL_NOT_EQUAL = 165,
    OP_LOGICAL_OR = 166,
    OP_LOGICAL_AND = 167,
    OP_LOGICAL_NOT = 168,
    OP_SELECT = 169,
    OP_I_EQUAL = 170,
    OP_I_NOT_EQUAL = 171,
    OP_U_GREATER_THAN = 172,
    OP_S_GREATER_THAN = 173,
    OP_U_GREATER_THAN_EQUAL = 174,
    OP_S_GREATER_THAN_EQUAL = 175,
    OP_U_LESS_THAN = 176,
    OP_S_LESS_THAN = 177,
    OP_U_LESS_THAN_EQUAL = 178,
    OP_S_LESS_THAN_EQUAL = 179,
    OP_SHIFT_RIGHT_LOGICAL = 194,
    OP_SHIFT_LEFT_LOGICAL = 196,
    OP_BITWISE_OR = 197,
    OP_BITWISE_XOR = 198,
    OP_BITWISE_AND = 199,
    OP_NOT = 200,
    OP_CONTROL_BARRIER = 224,
    OP_MEMORY_BARRIER = 225,
    OP_ATOMIC_STORE = 228,
    OP_PHI = 245,
    OP_LOOP_MERGE = 246,
    OP_SELECTION_MERGE = 247,
    OP_LABEL = 248,
    OP_BRANCH = 249,
    OP_BRANCH_CONDITIONAL = 250,
    OP_SWITCH = 251,
    OP_KILL = 252,
    OP_RETURN = 253,
    OP_RETURN_VALUE = 254,
    OP_UNREACHABLE = 255,
    OP_LIFETIME_START = 256,
    OP_LIFETIME_STOP = 257,
    OP_NO_LINE = 317,
    OP_EXECUTION_MODE_ID = 331,
    OP_GROUP_NON_UNIFORM_I_ADD = 349,       /* the first opcode of arithmetic among subgroups */
    OP_GROUP_NON_UNIFORM_LOGICAL_XOR = 364, /* the last one */
    OP_GROUP_NON_UNIFORM_QUAD_BROADCAST = 365,
    OP_GROUP_NON_UNIFORM_QUAD_SWAP = 366,
    OP_COOPERATIVE_MATRIX_STORE = 4458,
};
enum { MODEL_GL_COMPUTE = 5 };
enum {
    MODE_LOCAL_SIZE = 17,
    MODE_LOCAL_SIZE_ID = 38,
    MODE_DENORM_PRESERVE = 4459,
    MODE_SIGNED_ZERO_INF_NAN_PRESERVE = 4461
};
enum {
    DECORATION_SPEC_ID = 1,
    DECORATION_ROW_MAJOR = 4,
    DECORATION_ARRAY_STRIDE = 6,
    DECORATION_MATRIX_STRIDE = 7,
    DECORATION_BUILT_IN = 11,
    DECORATION_BINDING = 33,
    DECORATION_SET = 34,
    DECORATION_OFFSET = 35
};
enum { BUILT_IN_WORKGROUP_SIZE = 25 };
enum { STORAGE_PUSH_CONSTANT = 9 };
enum {
    CAPABILITY_GROUP_NON_UNIFORM_ARITHMETIC = 63,
    CAPABILITY_GROUP_NON_UNIFORM_QUAD = 68,
    CAPABILITY_DENORM_PRESERVE = 4464,
    CAPABILITY_SIGNED_ZERO_INF_NAN_PRESERVE = 4466
};

/* A module, and the values of its specialization constants. The constant with SpecId i has the
 * value spec[i], or the module's own value if i >= spec_count. */
typedef struct tsr__spirv_module {
    const uint32_t *words;
    size_t count;
    const uint32_t *spec;
    uint32_t spec_count;
} tsr__spirv_module;

/* Instructions are identified by the index of their first word. The first word has the opcode in
 * its lower half, and in its upper half the number of words. */
static inline uint32_t tsr__spirv_opcode(const tsr__spirv_module *module, size_t at)
{
    return module->words[at] & 0xffff;
}

/* An instruction of 0 words, which no valid module has, counts as the rest of the module, so that
 * loops over instructions end. */
static inline size_t tsr__spirv_length(const tsr__spirv_module *module, size_t at)
{
    const size_t length = module->words[at] >> 16;
    return length == 0 ? module->count - at : length;
}

/* The following functions search the module. The instructions must fill the module exactly; all
 * other parts of it may be invalid. */

/* Returns the instruction that defines the constant `id`, or NULL if there is none. */
const uint32_t *tsr__spirv_find_constant(const tsr__spirv_module *module, uint32_t id);

/* Writes the value of the constant `id`. Returns false if `id` is not a 32-bit constant. If the
 * constant is computed from other constants, the value is 1, and only the driver checks the real
 * value. */
bool tsr__spirv_constant_value(const tsr__spirv_module *module, uint32_t id, uint32_t *out);

/* Returns the instruction that defines the type `id`, or NULL if there is none or if it has fewer
 * than `length` words. */
const uint32_t *tsr__spirv_find_type(const tsr__spirv_module *module, uint32_t id, uint32_t length);

/* Returns the instruction that gives `decoration` to a member of the struct `id`, or to `id` itself
 * if the member is TSR__SPIRV_WHOLE. Returns NULL if there is none with `operands` words after the
 * decoration. */
#define TSR__SPIRV_WHOLE UINT32_MAX
const uint32_t *tsr__spirv_find_decoration(const tsr__spirv_module *module, uint32_t id,
                                           uint32_t member, uint32_t decoration, uint32_t operands);

/* Returns the number of bytes from the start of the push constants to the end of their block, or 0
 * if there is no block. Members of types that are not possible in a block count as empty
 * (push_constants.c). */
uint64_t tsr__spirv_push_bytes(const tsr__spirv_module *module);

#endif
