/* Changes a shader's SPIR-V so that it keeps subnormal f16 numbers, and so that it computes with
 * infinities. */
#include <string.h>

#include "base/alloc.h"
#include "gpu/spirv/reader.h"
#include "gpu/spirv/spirv.h"

/* The id of the specialization constant WIDEN_F16 in shaders/include/float16.glsl. */
enum { WIDEN_F16 = 100 };

/* The places in a module that must change so that it keeps subnormal numbers: ids, and indices of
 * words. A place that the module does not have is 0. */
typedef struct places {
    uint32_t entry, constant; /* ids of the entry point and of WIDEN_F16 */
    size_t after_entries;     /* the index of the first word behind the OpEntryPoint instructions */
    size_t value;             /* the index of the word with the value of WIDEN_F16 */
} places;

static places find_places(const tsr__spirv_module *module)
{
    places found = {0};

    for (size_t at = TSR__SPIRV_HEADER;
         at < module->count && tsr__spirv_opcode(module, at) != OP_FUNCTION;
         at += tsr__spirv_length(module, at)) {
        const uint32_t *w = module->words + at;
        switch (tsr__spirv_opcode(module, at)) {
        case OP_ENTRY_POINT:
            found.entry = w[2];
            found.after_entries = at + tsr__spirv_length(module, at);
            break;
        case OP_DECORATE:
            if (w[2] == DECORATION_SPEC_ID && w[3] == WIDEN_F16)
                found.constant = w[1];
            break;
        case OP_SPEC_CONSTANT:
            if (w[2] == found.constant)
                found.value = at + 3;
            break;
        default:
            break;
        }
    }
    return found;
}

enum { ADDED = 6 }; /* the words that add_mode adds */

/* Writes a copy of the module with an execution mode for floats of `width` bits. SPIR-V has such
 * modes without an extension since version 1.4. */
static size_t add_mode(const uint32_t *code, size_t words, const places *found,
                       uint32_t needed_capability, uint32_t added_mode, uint32_t width,
                       uint32_t *out)
{
    const uint32_t capability[] = {2 << 16 | OP_CAPABILITY, needed_capability};
    const uint32_t mode[] = {4 << 16 | OP_EXECUTION_MODE, found->entry, added_mode, width};
    size_t count = 0;

    memcpy(out, code, TSR__SPIRV_HEADER * sizeof *code);
    count += TSR__SPIRV_HEADER;
    memcpy(out + count, capability, sizeof capability);
    count += 2;
    memcpy(out + count, code + TSR__SPIRV_HEADER,
           (found->after_entries - TSR__SPIRV_HEADER) * sizeof *code);
    count += found->after_entries - TSR__SPIRV_HEADER;
    memcpy(out + count, mode, sizeof mode);
    count += 4;
    memcpy(out + count, code + found->after_entries, (words - found->after_entries) * sizeof *code);
    return count + words - found->after_entries;
}

tsr_status tsr__spirv_keep_subnormals(const tsr_device *device, const uint32_t *code,
                                      size_t size_bytes, uint32_t **out, size_t *out_size_bytes)
{
    const size_t words = size_bytes / sizeof *code;
    const places found = find_places(&(tsr__spirv_module){.words = code, .count = words});

    *out = NULL;
    if (device->subnormals == TSR__SUBNORMALS_KEPT || found.value == 0)
        return TSR_OK;
    uint32_t *copy = tsr__calloc(words + ADDED, sizeof *copy);
    if (!copy)
        return TSR_ERR_NO_MEMORY;
    size_t count = words;
    if (device->subnormals == TSR__SUBNORMALS_BY_MODE) {
        count = add_mode(code, words, &found, CAPABILITY_DENORM_PRESERVE, MODE_DENORM_PRESERVE, 16,
                         copy);
    } else {
        memcpy(copy, code, size_bytes);
        copy[found.value] = 1;
    }
    *out = copy;
    *out_size_bytes = count * sizeof *copy;
    return TSR_OK;
}

/* True if the module has an infinity of 32 bits among its constants, or its bits. */
static bool has_infinity(const tsr__spirv_module *module)
{
    for (size_t at = TSR__SPIRV_HEADER;
         at < module->count && tsr__spirv_opcode(module, at) != OP_FUNCTION;
         at += tsr__spirv_length(module, at))
        if (tsr__spirv_opcode(module, at) == OP_CONSTANT && tsr__spirv_length(module, at) == 4 &&
            (module->words[at + 3] & 0x7fffffff) == 0x7f800000)
            return true;
    return false;
}

tsr_status tsr__spirv_keep_infinities(const tsr_device *device, const uint32_t *code,
                                      size_t size_bytes, uint32_t **out, size_t *out_size_bytes)
{
    const tsr__spirv_module module = {.words = code, .count = size_bytes / sizeof *code};

    *out = NULL;
    if (!device->infinities_by_mode || !has_infinity(&module))
        return TSR_OK;
    const places found = find_places(&module);
    uint32_t *copy = tsr__calloc(module.count + ADDED, sizeof *copy);
    if (!copy)
        return TSR_ERR_NO_MEMORY;
    const size_t count =
        add_mode(code, module.count, &found, CAPABILITY_SIGNED_ZERO_INF_NAN_PRESERVE,
                 MODE_SIGNED_ZERO_INF_NAN_PRESERVE, 32, copy);
    *out = copy;
    *out_size_bytes = count * sizeof *copy;
    return TSR_OK;
}
