/* Computes the length of a block of push constants from its layout decorations. */
#include "gpu/kernel/spirv_source.h"

/* The largest number of types that are visited, because in a damaged module a type may contain
 * itself. Types beyond this number count as 0 bytes. */
#define TYPES_MAX 512

typedef struct measure {
    const tsr__spirv_source *source;
    int types_left;
} measure;

/* The layout of a struct's member that is a matrix, or an array of matrices. */
typedef struct matrix_layout {
    uint64_t stride;
    bool row_major;
} matrix_layout;

/* Returns the instruction that defines the type `id`, or NULL if there is none or if it has fewer
 * than `length` words. */
static const uint32_t *find_type(const tsr__spirv_source *source, uint32_t id, uint32_t length)
{
    for (uint64_t at = TSR__SPIRV_HEADER; at < source->count; at += source->words[at] >> 16) {
        const uint32_t *instruction = source->words + at;
        const uint32_t op = instruction[0] & 0xffff;
        if (op >= OP_TYPE_INT && op <= OP_TYPE_POINTER && instruction[0] >> 16 >= 2 &&
            instruction[1] == id)
            return instruction[0] >> 16 >= length ? instruction : NULL;
    }
    return NULL;
}

/* Returns the instruction that gives decoration `wanted` to a struct's member, or to the id itself
 * if the member is WHOLE. Returns NULL if there is none. */
#define WHOLE UINT32_MAX
static const uint32_t *find_decoration(const tsr__spirv_source *source, uint32_t id,
                                       uint32_t member, uint32_t wanted)
{
    const uint32_t op = member == WHOLE ? OP_DECORATE : OP_MEMBER_DECORATE;
    const uint32_t before = member == WHOLE ? 2 : 3;

    for (uint64_t at = TSR__SPIRV_HEADER; at < source->count; at += source->words[at] >> 16) {
        const uint32_t *instruction = source->words + at;
        if ((instruction[0] & 0xffff) == op && instruction[0] >> 16 > before &&
            instruction[1] == id && (member == WHOLE || instruction[2] == member) &&
            instruction[before] == wanted)
            return instruction;
    }
    return NULL;
}

/* Returns the decoration's operand, which is its last word, or 0 if there is no such decoration. */
static uint64_t decoration(const tsr__spirv_source *source, uint32_t id, uint32_t member,
                           uint32_t wanted)
{
    const uint32_t *found = find_decoration(source, id, member, wanted);

    return found ? found[(found[0] >> 16) - 1] : 0;
}

static uint64_t bytes_of(measure *m, uint32_t id, matrix_layout matrices);

static uint64_t struct_bytes(measure *m, const uint32_t *type)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i + 2 < type[0] >> 16 && m->types_left > 0; i++) {
        matrix_layout matrices = {
            .stride = decoration(m->source, type[1], i, DECORATION_MATRIX_STRIDE),
            .row_major = find_decoration(m->source, type[1], i, DECORATION_ROW_MAJOR) != NULL};
        uint64_t member = decoration(m->source, type[1], i, DECORATION_OFFSET) +
                          bytes_of(m, type[2 + i], matrices);
        end = member > end ? member : end;
    }
    return end;
}

static uint64_t array_bytes(measure *m, const uint32_t *type, matrix_layout matrices)
{
    uint32_t length;

    if (!tsr__spirv_value(m->source, type[3], &length) || length == 0)
        return 0;
    return decoration(m->source, type[1], WHOLE, DECORATION_ARRAY_STRIDE) * (length - 1) +
           bytes_of(m, type[2], matrices);
}

/* Returns the size of a matrix. Its vectors (rows or columns) are `stride` bytes apart; no padding
 * follows the last one. */
static uint64_t matrix_bytes(measure *m, const uint32_t *type, matrix_layout layout)
{
    const uint32_t *column = find_type(m->source, type[2], 4);
    if (!column || column[3] == 0 || type[3] == 0)
        return 0;
    uint32_t vectors = layout.row_major ? column[3] : type[3];
    uint32_t elements = layout.row_major ? type[3] : column[3];
    return layout.stride * (vectors - 1) + elements * bytes_of(m, column[2], layout);
}

static uint64_t bytes_of(measure *m, uint32_t id, matrix_layout matrices)
{
    const uint32_t *type = find_type(m->source, id, 3);

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

uint64_t tsr__spirv_push_bytes(const tsr__spirv_source *source)
{
    measure m = {source, TYPES_MAX};

    for (uint64_t at = TSR__SPIRV_HEADER; at < source->count; at += source->words[at] >> 16) {
        const uint32_t *variable = source->words + at;
        if ((variable[0] & 0xffff) != OP_VARIABLE || variable[0] >> 16 < 4 ||
            variable[3] != STORAGE_PUSH_CONSTANT)
            continue;
        const uint32_t *pointer = find_type(source, variable[1], 4);
        if (pointer && (pointer[0] & 0xffff) == OP_TYPE_POINTER)
            return bytes_of(&m, pointer[3], (matrix_layout){0});
    }
    return 0;
}
