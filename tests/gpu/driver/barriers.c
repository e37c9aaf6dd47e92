/* Removes a barrier from shader modules, so that a script can find out which test notices its
 * absence (barriers.sh). A barrier is known by the kernel and by its line in a source file, which
 * modules contain that were compiled with glslc -g. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/spirv/reader.h"

/* Numbers of the SPIR-V specification that reader.h does not have. */
enum { OP_SOURCE = 3, OP_STRING = 7 };
enum { SCOPE_WORKGROUP = 2, SCOPE_SUBGROUP = 3 };

/* A module, and its instruction that is read at the moment. */
typedef struct reader {
    const uint32_t *words;
    size_t count, at;
} reader;

static bool next_instruction(reader *r)
{
    r->at += r->at == 0 ? TSR__SPIRV_HEADER : r->words[r->at] >> 16;
    return r->at < r->count;
}

static uint32_t opcode_of(const reader *r)
{
    return r->words[r->at] & 0xffff;
}

/* The last part of the path that the string `id` holds, or "?". */
static const char *file_name(const uint32_t *words, size_t count, uint32_t id)
{
    for (reader r = {words, count, 0}; next_instruction(&r) && opcode_of(&r) != OP_FUNCTION;)
        if (opcode_of(&r) == OP_STRING && words[r.at + 1] == id) {
            const char *path = (const char *)(words + r.at + 2), *last = strrchr(path, '/');
            return last ? last + 1 : path;
        }
    return "?";
}

static uint32_t constant_value(const uint32_t *words, size_t count, uint32_t id)
{
    for (reader r = {words, count, 0}; next_instruction(&r) && opcode_of(&r) != OP_FUNCTION;)
        if (opcode_of(&r) == OP_CONSTANT && words[r.at + 2] == id)
            return words[r.at + 3];
    return UINT32_MAX;
}

static const char *kind_of(const reader *r)
{
    const uint32_t scope = constant_value(r->words, r->count, r->words[r->at + 1]);
    if (opcode_of(r) == OP_MEMORY_BARRIER)
        return "memory";
    return scope == SCOPE_WORKGROUP ? "workgroup" : scope == SCOPE_SUBGROUP ? "subgroup" : "other";
}

static void list(const char *barrier, const char *kind)
{
    const char *path = getenv("TEST_DRIVER_BARRIERS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (path && (!file || fprintf(file, "%s %s\n", barrier, kind) < 0))
        driver_fail("%s cannot be written", path);
    if (file)
        fclose(file);
}

uint32_t *barriers_removed(const uint32_t *code, size_t size_bytes)
{
    const char *wanted = getenv("TEST_DRIVER_REMOVE");
    const size_t count = size_bytes / sizeof *code;
    if (!wanted && !getenv("TEST_DRIVER_BARRIERS"))
        return NULL;
    uint32_t *copy = malloc(size_bytes);
    if (!copy)
        driver_fail("out of memory");
    memcpy(copy, code, size_bytes);
    const char *kernel = "?", *file = "?";
    uint32_t line = 0;
    for (reader r = {code, count, 0}; next_instruction(&r);) {
        const uint32_t opcode = opcode_of(&r), length = code[r.at] >> 16;
        /* included files are sources, too */
        if (opcode == OP_SOURCE && length > 3 &&
            strstr(file_name(code, count, code[r.at + 3]), ".comp"))
            kernel = file_name(code, count, code[r.at + 3]);
        if (opcode == OP_LINE) {
            file = file_name(code, count, code[r.at + 1]);
            line = code[r.at + 2];
        }
        if (opcode != OP_CONTROL_BARRIER && opcode != OP_MEMORY_BARRIER)
            continue;
        char barrier[300];
        snprintf(barrier, sizeof barrier, "%s %s:%u", kernel, file, line);
        list(barrier, kind_of(&r));
        for (uint32_t i = 0; wanted && strcmp(barrier, wanted) == 0 && i < length; i++)
            copy[r.at + i] = 1u << 16 | OP_NOP;
    }
    return copy;
}
