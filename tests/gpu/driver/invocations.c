/* Rewrites SPIR-V so that the invocations of a workgroup, and the workgroups, have their numbers in
 * reverse. Drivers for the CPU run them in ascending order, up to the next barrier, so without
 * this, a missing barrier changes no result.
 *
 * Modules that use subgroups keep the order within a subgroup: the subgroups are reversed.
 *
 * The rewritten entry point computes the new numbers first and stores them in private variables,
 * which take the place of the built-in ones everywhere. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/spirv/reader.h"

/* Numbers of the SPIR-V specification that reader.h does not have. */
enum {
    OP_LOAD = 61,
    OP_ACCESS_CHAIN = 65,
    OP_IN_BOUNDS_ACCESS_CHAIN = 66,
    OP_COMPOSITE_CONSTRUCT = 80,
};
enum { FIRST_TYPE = 19, LAST_TYPE = 39 };
enum { STORAGE_INPUT = 1, STORAGE_PRIVATE = 6, CAPABILITY_GROUP_NON_UNIFORM = 61 };

/* The built-in variables. The first PERMUTED of them get new values. */
enum {
    WORKGROUP_ID,
    LOCAL_ID,
    GLOBAL_ID,
    LOCAL_INDEX,
    SUBGROUP_ID,
    PERMUTED,
    WORKGROUPS = PERMUTED,
    SUBGROUPS,
    SUBGROUP_SIZE,
    BUILT_INS
};
static const struct {
    uint32_t number; /* in SPIR-V */
    bool vector;
} built_in[BUILT_INS] = {
    [WORKGROUP_ID] = {26, true}, [LOCAL_ID] = {27, true},      [GLOBAL_ID] = {28, true},
    [LOCAL_INDEX] = {29, false}, [SUBGROUP_ID] = {40, false},  [WORKGROUPS] = {24, true},
    [SUBGROUPS] = {38, false},   [SUBGROUP_SIZE] = {36, false}};

/* A growing sequence of words. */
typedef struct words {
    uint32_t *at;
    size_t count, capacity;
} words;

static void append(words *to, const uint32_t *from, size_t count)
{
    if (to->count + count > to->capacity) {
        to->capacity = 2 * (to->count + count);
        to->at = realloc(to->at, to->capacity * sizeof *to->at);
        if (!to->at)
            driver_fail("out of memory");
    }
    memcpy(to->at + to->count, from, count * sizeof *from);
    to->count += count;
}

static void add_instruction(words *to, uint32_t opcode, size_t count, const uint32_t *operands)
{
    const uint32_t first = (uint32_t)(count + 1) << 16 | opcode;
    append(to, &first, 1);
    append(to, operands, count);
}
#define ADD(to, opcode, ...)                                                                       \
    add_instruction(to, opcode, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),              \
                    (uint32_t[]){__VA_ARGS__})

typedef struct module {
    const uint32_t *at;
    size_t count;
    uint32_t bound; /* the next free id */
    uint32_t main, local_size[3];
    bool subgroups;
    uint32_t variable[BUILT_INS]; /* the variables of the module, or 0 */
    uint32_t uint_type, vector_type;
    uint32_t input_uint, input_vector, private_uint, private_vector; /* pointers */
    uint32_t replaced[PERMUTED];                                     /* the private variables */
    words decorations, globals, prologue;
} module;

#define FOR_INSTRUCTIONS(m, i)                                                                     \
    for (size_t i = TSR__SPIRV_HEADER; (i) < (m)->count; (i) += (m)->at[i] >> 16)

static uint32_t opcode_at(const module *m, size_t i)
{
    return m->at[i] & 0xffff;
}

/* Returns the result of the global instruction with these operands, which is added if there is
 * none. `result` is the place of the result among the operands: 0 for types, 1 for others. */
static uint32_t global(module *m, uint32_t opcode, size_t result, size_t count, uint32_t *operands)
{
    FOR_INSTRUCTIONS(m, i)
    {
        if (opcode_at(m, i) == OP_FUNCTION)
            break;
        if (opcode_at(m, i) != opcode || m->at[i] >> 16 != count + 1)
            continue;
        bool equal = true;
        for (size_t k = 0; k < count; k++)
            equal = equal && (k == result || m->at[i + 1 + k] == operands[k]);
        if (equal)
            return m->at[i + 1 + result];
    }
    for (size_t i = 0; i < m->globals.count; i += m->globals.at[i] >> 16) {
        const uint32_t *at = m->globals.at + i;
        bool equal = (at[0] & 0xffff) == opcode && at[0] >> 16 == count + 1;
        for (size_t k = 0; equal && k < count; k++)
            equal = k == result || at[1 + k] == operands[k];
        if (equal)
            return at[1 + result];
    }
    operands[result] = m->bound++;
    add_instruction(&m->globals, opcode, count, operands);
    return operands[result];
}
#define GLOBAL(m, opcode, result, ...)                                                             \
    global(m, opcode, result, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),                \
           (uint32_t[]){__VA_ARGS__})

static uint32_t constant(module *m, uint32_t value)
{
    return GLOBAL(m, OP_CONSTANT, 1, m->uint_type, 0, value);
}

static uint32_t constant_value(const module *m, uint32_t id)
{
    FOR_INSTRUCTIONS(m, i)
    if (opcode_at(m, i) == OP_CONSTANT && m->at[i + 2] == id)
        return m->at[i + 3];
    driver_fail("a workgroup's size is not a constant");
}

static void read_decoration(module *m, size_t i)
{
    if (m->at[i + 2] != DECORATION_BUILT_IN)
        return;
    for (size_t b = 0; b < BUILT_INS; b++)
        if (m->at[i + 3] == built_in[b].number)
            m->variable[b] = m->at[i + 1];
}

/* Reads what is needed of the module. Returns false if it cannot be rewritten: its workgroup's size
 * is a specialization constant, as in kernels of a library's user. */
static bool read_module(module *m)
{
    uint32_t size_id = 0;
    FOR_INSTRUCTIONS(m, i)
    {
        switch (opcode_at(m, i)) {
        case OP_CAPABILITY:
            m->subgroups = m->subgroups || m->at[i + 1] == CAPABILITY_GROUP_NON_UNIFORM;
            break;
        case OP_ENTRY_POINT:
            m->main = m->at[i + 2];
            break;
        case OP_EXECUTION_MODE:
            if (m->at[i + 2] == MODE_LOCAL_SIZE)
                memcpy(m->local_size, m->at + i + 3, sizeof m->local_size);
            break;
        case OP_DECORATE:
            read_decoration(m, i);
            if (m->at[i + 2] == DECORATION_BUILT_IN && m->at[i + 3] == BUILT_IN_WORKGROUP_SIZE)
                size_id = m->at[i + 1];
            break;
        case OP_CONSTANT_COMPOSITE:
            for (size_t k = 0; k < 3 && m->at[i + 2] == size_id; k++)
                m->local_size[k] = constant_value(m, m->at[i + 3 + k]);
            break;
        case OP_FUNCTION:
            return m->main != 0 && m->local_size[0] != 0;
        case OP_SPEC_CONSTANT_COMPOSITE:
            if (m->at[i + 2] == size_id)
                return false;
            break;
        }
    }
    return false;
}

/* The entry point's new code ------------------------------------------------------------------- */

/* Returns the variable of a built-in, which is added to the module if it has none. */
static uint32_t input(module *m, size_t which)
{
    if (m->variable[which] == 0) {
        m->variable[which] = m->bound++;
        ADD(&m->decorations, OP_DECORATE, m->variable[which], DECORATION_BUILT_IN,
            built_in[which].number);
        ADD(&m->globals, OP_VARIABLE, built_in[which].vector ? m->input_vector : m->input_uint,
            m->variable[which], STORAGE_INPUT);
    }
    return m->variable[which];
}

static uint32_t load(module *m, size_t which)
{
    const uint32_t type = built_in[which].vector ? m->vector_type : m->uint_type;
    const uint32_t variable = input(m, which), result = m->bound++;
    ADD(&m->prologue, OP_LOAD, type, result, variable);
    return result;
}

static uint32_t compute(module *m, uint32_t opcode, uint32_t type, uint32_t a, uint32_t b)
{
    const uint32_t result = m->bound++;
    ADD(&m->prologue, opcode, type, result, a, b);
    return result;
}

static uint32_t vector_of(module *m, uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t result = m->bound++;
    ADD(&m->prologue, OP_COMPOSITE_CONSTRUCT, m->vector_type, result, x, y, z);
    return result;
}

static void store(module *m, size_t which, uint32_t value)
{
    if (m->variable[which] == 0)
        return;
    const uint32_t type = built_in[which].vector ? m->private_vector : m->private_uint;
    m->replaced[which] = m->bound++;
    ADD(&m->globals, OP_VARIABLE, type, m->replaced[which], STORAGE_PRIVATE);
    ADD(&m->prologue, OP_STORE, m->replaced[which], value);
}

/* The new index of an invocation whose subgroup is full: that of the invocation with the same place
 * in the subgroup at the other end. If the last subgroup is not full, all keep their index. */
static uint32_t other_subgroup(module *m, uint32_t index, uint32_t total)
{
    const uint32_t uint = m->uint_type, count = constant(m, total), one = constant(m, 1);
    const uint32_t bool_type = GLOBAL(m, OP_TYPE_BOOL, 0, 0);
    const uint32_t size = load(m, SUBGROUP_SIZE);
    const uint32_t own = compute(m, OP_U_DIV, uint, index, size);
    const uint32_t place = compute(m, OP_U_MOD, uint, index, size);
    const uint32_t last = compute(m, OP_I_SUB, uint, compute(m, OP_U_DIV, uint, count, size), one);
    const uint32_t other = compute(m, OP_I_SUB, uint, last, own);
    const uint32_t moved =
        compute(m, OP_I_ADD, uint, compute(m, OP_I_MUL, uint, other, size), place);
    const uint32_t full =
        compute(m, OP_I_EQUAL, bool_type, constant(m, 0), compute(m, OP_U_MOD, uint, count, size));
    const uint32_t result = m->bound++;
    ADD(&m->prologue, OP_SELECT, uint, result, full, moved, index);
    if (m->variable[SUBGROUP_ID]) {
        const uint32_t id = load(m, SUBGROUP_ID), chosen = m->bound++;
        const uint32_t reversed =
            compute(m, OP_I_SUB, uint, compute(m, OP_I_SUB, uint, load(m, SUBGROUPS), one), id);
        ADD(&m->prologue, OP_SELECT, uint, chosen, full, reversed, id);
        store(m, SUBGROUP_ID, chosen);
    }
    return result;
}

static void write_prologue(module *m)
{
    const uint32_t *size = m->local_size, total = size[0] * size[1] * size[2];
    m->uint_type = GLOBAL(m, OP_TYPE_INT, 0, 0, 32, 0);
    const uint32_t uint = m->uint_type;
    m->vector_type = GLOBAL(m, OP_TYPE_VECTOR, 0, 0, uint, 3);
    m->input_uint = GLOBAL(m, OP_TYPE_POINTER, 0, 0, STORAGE_INPUT, uint);
    m->input_vector = GLOBAL(m, OP_TYPE_POINTER, 0, 0, STORAGE_INPUT, m->vector_type);
    m->private_uint = GLOBAL(m, OP_TYPE_POINTER, 0, 0, STORAGE_PRIVATE, uint);
    m->private_vector = GLOBAL(m, OP_TYPE_POINTER, 0, 0, STORAGE_PRIVATE, m->vector_type);

    uint32_t index = load(m, LOCAL_INDEX);
    index = m->subgroups ? other_subgroup(m, index, total)
                         : compute(m, OP_I_SUB, uint, constant(m, total - 1), index);
    store(m, LOCAL_INDEX, index);
    const uint32_t x = constant(m, size[0]), y = constant(m, size[1]), z = constant(m, size[2]);
    const uint32_t rows = compute(m, OP_U_DIV, uint, index, x);
    const uint32_t local =
        vector_of(m, compute(m, OP_U_MOD, uint, index, x), compute(m, OP_U_MOD, uint, rows, y),
                  compute(m, OP_U_DIV, uint, rows, y));
    store(m, LOCAL_ID, local);
    const uint32_t each = constant(m, 1), ones = vector_of(m, each, each, each);
    const uint32_t last = compute(m, OP_I_SUB, m->vector_type, load(m, WORKGROUPS), ones);
    const uint32_t group = compute(m, OP_I_SUB, m->vector_type, last, load(m, WORKGROUP_ID));
    store(m, WORKGROUP_ID, group);
    if (m->variable[GLOBAL_ID])
        store(m, GLOBAL_ID,
              compute(m, OP_I_ADD, m->vector_type,
                      compute(m, OP_I_MUL, m->vector_type, group, vector_of(m, x, y, z)), local));
}

/* Writing the module --------------------------------------------------------------------------- */

/* Adds an instruction of a function, with the private variables in place of the built-in ones. */
static void add_replaced(module *m, words *out, size_t i)
{
    const uint32_t length = m->at[i] >> 16, opcode = opcode_at(m, i);
    const size_t first = out->count;
    append(out, m->at + i, length);
    uint32_t *copy = out->at + first;
    if (opcode != OP_LOAD && opcode != OP_ACCESS_CHAIN && opcode != OP_IN_BOUNDS_ACCESS_CHAIN)
        return;
    for (size_t b = 0; b < PERMUTED; b++)
        if (m->replaced[b] && copy[3] == m->variable[b]) {
            copy[3] = m->replaced[b];
            if (opcode != OP_LOAD)
                copy[1] = m->private_uint;
            return;
        }
}

static void add_entry_point(module *m, words *out, size_t i)
{
    const size_t first = out->count;
    append(out, m->at + i, m->at[i] >> 16);
    for (size_t k = 0; k < m->globals.count; k += m->globals.at[k] >> 16) {
        const uint32_t *at = m->globals.at + k;
        /* until version 1.3, only inputs and outputs are listed */
        if ((at[0] & 0xffff) == OP_VARIABLE && (at[3] == STORAGE_INPUT || m->at[1] >= 0x10400)) {
            append(out, &at[2], 1);
            out->at[first] += 1u << 16;
        }
    }
}

static void write_module(module *m, words *out)
{
    bool decorated = false, in_functions = false, in_main = false, begun = false;
    append(out, m->at, TSR__SPIRV_HEADER);
    out->at[3] = m->bound;
    FOR_INSTRUCTIONS(m, i)
    {
        const uint32_t opcode = opcode_at(m, i);
        if (!decorated && opcode >= FIRST_TYPE && opcode <= LAST_TYPE) {
            append(out, m->decorations.at, m->decorations.count);
            decorated = true;
        }
        if (!in_functions && opcode == OP_FUNCTION) {
            append(out, m->globals.at, m->globals.count);
            in_functions = true;
        }
        if (opcode == OP_FUNCTION)
            in_main = m->at[i + 2] == m->main;
        if (in_main && !begun && opcode != OP_FUNCTION && opcode != OP_LABEL &&
            opcode != OP_VARIABLE && opcode != OP_LINE && opcode != OP_NO_LINE) {
            append(out, m->prologue.at, m->prologue.count);
            begun = true;
        }
        if (opcode == OP_ENTRY_POINT)
            add_entry_point(m, out, i);
        else if (in_functions)
            add_replaced(m, out, i);
        else
            append(out, m->at + i, m->at[i] >> 16);
    }
}

uint32_t *invocations_permuted(const uint32_t *code, size_t size_bytes, size_t *out_size_bytes)
{
    words out = {0};
    module m = {.at = code, .count = size_bytes / sizeof *code, .bound = code[3]};
    if (!environment_is("TEST_DRIVER_INVOCATIONS", "1") || !read_module(&m))
        return NULL;
    write_prologue(&m);
    write_module(&m, &out);
    free(m.decorations.at);
    free(m.globals.at);
    free(m.prologue.at);
    *out_size_bytes = out.count * sizeof *out.at;
    return out.at;
}
