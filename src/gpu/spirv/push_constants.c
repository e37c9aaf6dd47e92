/* Computes the length of a block of push constants from its layout decorations. */
#include "gpu/spirv/reader.h"

/* The largest number of types that are visited, because in a damaged module a type may contain
 * itself. Types beyond this number count as 0 bytes. */
#define TYPES_MAX 512

typedef struct measure {
    const tsr__spirv_module *module;
    int types_left;
} measure;

/* The layout of a struct's member that is a matrix, or an array of matrices. */
typedef struct matrix_layout {
    uint64_t stride;
    bool row_major;
} matrix_layout;

/* Returns the decoration's operand, which is its last word, or 0 if there is no such decoration. */
static uint64_t operand_of(const tsr__spirv_module *module, uint32_t id, uint32_t member,
                           uint32_t decoration)
{
    const uint32_t *found = tsr__spirv_find_decoration(module, id, member, decoration, 0);

    return found ? found[(found[0] >> 16) - 1] : 0;
}

static uint64_t bytes_of(measure *m, uint32_t id, matrix_layout matrices);

static uint64_t struct_bytes(measure *m, const uint32_t *type)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i + 2 < type[0] >> 16 && m->types_left > 0; i++) {
        matrix_layout matrices = {
            .stride = operand_of(m->module, type[1], i, DECORATION_MATRIX_STRIDE),
            .row_major =
                tsr__spirv_find_decoration(m->module, type[1], i, DECORATION_ROW_MAJOR, 0) != NULL};
        uint64_t member = operand_of(m->module, type[1], i, DECORATION_OFFSET) +
                          bytes_of(m, type[2 + i], matrices);
        end = member > end ? member : end;
    }
    return end;
}

static uint64_t array_bytes(measure *m, const uint32_t *type, matrix_layout matrices)
{
    uint32_t length;

    if (!tsr__spirv_constant_value(m->module, type[3], &length) || length == 0)
        return 0;
    return operand_of(m->module, type[1], TSR__SPIRV_WHOLE, DECORATION_ARRAY_STRIDE) *
               (length - 1) +
           bytes_of(m, type[2], matrices);
}

/* Returns the size of a matrix. Its vectors (rows or columns) are `stride` bytes apart; no padding
 * follows the last one. */
static uint64_t matrix_bytes(measure *m, const uint32_t *type, matrix_layout layout)
{
    const uint32_t *column = tsr__spirv_find_type(m->module, type[2], 4);
    if (!column || column[3] == 0 || type[3] == 0)
        return 0;
    uint32_t vectors = layout.row_major ? column[3] : type[3];
    uint32_t elements = layout.row_major ? type[3] : column[3];
    return layout.stride * (vectors - 1) + elements * bytes_of(m, column[2], layout);
}

static uint64_t bytes_of(measure *m, uint32_t id, matrix_layout matrices)
{
    const uint32_t *type = tsr__spirv_find_type(m->module, id, 3);

    if (!type || m->types_left-- <= 0)
        return 0;
    switch (type[0] & 0xffff) {
    case OP_TYPE_INT:
    case OP_TYPE_FLOAT:
        return type[2] / 8;
    case OP_TYPE_POINTER:
        return 8;
    case OP_TYPE_STRUCT:
        return struct_bytes(m, type);
    default:
        break;
    }
    if (type[0] >> 16 < 4)
        return 0;
    switch (type[0] & 0xffff) {
    case OP_TYPE_VECTOR:
        return type[3] * bytes_of(m, type[2], matrices);
    case OP_TYPE_MATRIX:
        return matrix_bytes(m, type, matrices);
    case OP_TYPE_ARRAY:
        return array_bytes(m, type, matrices);
    default:
        return 0;
    }
}

uint64_t tsr__spirv_push_bytes(const tsr__spirv_module *module)
{
    measure m = {module, TYPES_MAX};

    for (size_t at = TSR__SPIRV_HEADER; at < module->count; at += tsr__spirv_length(module, at)) {
        const uint32_t *variable = module->words + at;
        if (tsr__spirv_opcode(module, at) != OP_VARIABLE || tsr__spirv_length(module, at) < 4 ||
            variable[3] != STORAGE_PUSH_CONSTANT)
            continue;
        const uint32_t *pointer = tsr__spirv_find_type(module, variable[1], 4);
        if (pointer && (pointer[0] & 0xffff) == OP_TYPE_POINTER)
            return bytes_of(&m, pointer[3], (matrix_layout){0});
    }
    return 0;
}
