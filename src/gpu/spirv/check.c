/* Checks modules that the caller supplies. */
#include "base/error.h"
#include "gpu/spirv/reader.h"
#include "gpu/spirv/spirv.h"

#define MAGIC UINT32_C(0x07230203)
#define MAGIC_SWAPPED UINT32_C(0x03022307)
#define VERSION_MAX                                                                                \
    UINT32_C(0x00010500) /* 1.5, the highest version of SPIR-V that Vulkan 1.2 accepts */
#define BOUND_MAX UINT32_C(0x3fffff)

/* A module that is being checked. */
typedef struct checked_module {
    const tsr_device_info *info;
    const char *name;
    tsr__spirv_module code;
    bool in_function;
    bool has_main;
    uint32_t main_id;
    /* the instructions that set the workgroup size by constants: one by the decoration
     * WorkgroupSize, one by an execution mode; NULL if there is none */
    const uint32_t *size_built_in, *size_mode;
} checked_module;

static tsr_status check_header(const char *name, const uint32_t *words, uint64_t count)
{
    TSR__REQUIRE(count > TSR__SPIRV_HEADER, "%s: %llu words are too few for a SPIR-V module", name,
                 (unsigned long long)count);
    TSR__REQUIRE(words[0] != MAGIC_SWAPPED, "%s: the SPIR-V is in the other byte order", name);
    TSR__REQUIRE(words[0] == MAGIC, "%s: not SPIR-V: the first word is %08x, not %08x", name,
                 (unsigned)words[0], (unsigned)MAGIC);
    TSR__REQUIRE(words[1] >= 0x10000 && words[1] <= VERSION_MAX && (words[1] & 0xff) == 0,
                 "%s: SPIR-V version word %08x; 1.0 to 1.5 can be used", name, (unsigned)words[1]);
    TSR__REQUIRE(words[3] > 0 && words[3] <= BOUND_MAX && words[4] == 0,
                 "%s: the SPIR-V header's bound %u and schema %u are not valid", name,
                 (unsigned)words[3], (unsigned)words[4]);
    return TSR_OK;
}

/* Checks that the device was opened with a capability that the module declares. The table has the
 * capabilities that it may lack; the driver checks all others. */
static tsr_status check_capability(const checked_module *module, uint32_t capability)
{
    const tsr_device_info *info = module->info;
    const struct {
        uint32_t capability;
        bool present;
        const char *what;
    } table[] = {
        {9, info->fp16, "16-bit float arithmetic"},
        {10, false, "64-bit floats"},
        {11, info->int64, "64-bit integers"},
        {39, info->int8, "8-bit arithmetic"},
        {4433, info->storage16, "16-bit storage"},
        {4434, info->storage16, "16-bit storage"},
        {4435, false, "16-bit push constants"},
        {4448, info->storage8, "8-bit storage"},
        {4449, info->storage8, "8-bit storage"},
        {4450, false, "8-bit push constants"},
        {6022, info->coopmat, "cooperative matrices"},
        {5116, info->coopmat_bf16, "bf16"},
        {5117, false, "dot products of bf16"},
        {5118, info->coopmat_bf16, "cooperative matrices of bf16"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].capability == capability && !table[i].present)
            return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: it needs %s (capability %u); %s has none",
                             module->name, table[i].what, (unsigned)capability, info->name);
    return TSR_OK;
}

/* Notes the entry point of a module. The instruction's first word is followed by the execution
 * model, an id, and a name. Each word of the name has 4 characters, beginning with the lowest
 * byte. */
static void note_entry_point(checked_module *module, const uint32_t *instruction, uint32_t length)
{
    static const char wanted[8] = "main";
    if (length < 5 || instruction[1] != MODEL_GL_COMPUTE)
        return;
    for (int i = 0; i < 8; i++) {
        uint32_t character = instruction[3 + i / 4] >> (8 * (i % 4)) & 0xff;
        if (character != (unsigned char)wanted[i])
            return;
        if (character == 0)
            break;
    }
    module->has_main = true;
    module->main_id = instruction[2];
}

static tsr_status check_local_size(const checked_module *module, const uint32_t *size)
{
    const tsr_device_info *info = module->info;
    uint64_t invocations = 1;
    bool fits = true;
    for (int i = 0; i < 3; i++) {
        fits = fits && size[i] > 0 && size[i] <= info->max_workgroup_size[i];
        invocations *= fits ? size[i] : 1;
    }
    TSR__REQUIRE(
        fits && invocations <= info->max_workgroup_invocations,
        "%s: workgroups of %u x %u x %u invocations; %s has at most %u x %u x %u and %u in "
        "all",
        module->name, (unsigned)size[0], (unsigned)size[1], (unsigned)size[2], info->name,
        (unsigned)info->max_workgroup_size[0], (unsigned)info->max_workgroup_size[1],
        (unsigned)info->max_workgroup_size[2], (unsigned)info->max_workgroup_invocations);
    return TSR_OK;
}

/* Notes the instruction that sets the workgroup size. Refuses a second such instruction, because
 * the driver might use another one than these checks. */
static tsr_status note_size(const checked_module *module, const uint32_t **noted,
                            const uint32_t *instruction)
{
    TSR__REQUIRE(!*noted, "%s: the SPIR-V is damaged: it sets the workgroup size twice",
                 module->name);
    *noted = instruction;
    return TSR_OK;
}

static tsr_status check_decoration(checked_module *module, const uint32_t *instruction,
                                   uint32_t length)
{
    TSR__REQUIRE(
        length < 3 || (instruction[2] != DECORATION_BINDING && instruction[2] != DECORATION_SET),
        "%s: it declares a descriptor (set or binding); kernels take addresses in push constants",
        module->name);
    if (length < 4 || instruction[2] != DECORATION_BUILT_IN ||
        instruction[3] != BUILT_IN_WORKGROUP_SIZE)
        return TSR_OK;
    return note_size(module, &module->size_built_in, instruction);
}

static tsr_status check_instruction(checked_module *module, const uint32_t *instruction,
                                    uint32_t length)
{
    switch (instruction[0] & 0xffff) {
    case OP_CAPABILITY:
        return length < 2 ? TSR_OK : check_capability(module, instruction[1]);
    case OP_ENTRY_POINT:
        note_entry_point(module, instruction, length);
        return TSR_OK;
    case OP_EXECUTION_MODE:
        if (length < 6 || instruction[2] != MODE_LOCAL_SIZE || instruction[1] != module->main_id)
            return TSR_OK;
        return check_local_size(module, instruction + 3);
    case OP_DECORATE:
        return check_decoration(module, instruction, length);
    case OP_EXECUTION_MODE_ID:
        if (length < 6 || instruction[2] != MODE_LOCAL_SIZE_ID || instruction[1] != module->main_id)
            return TSR_OK;
        return note_size(module, &module->size_mode, instruction);
    case OP_FUNCTION:
    case OP_FUNCTION_END: {
        bool begins = (instruction[0] & 0xffff) == OP_FUNCTION;
        TSR__REQUIRE(module->in_function != begins, "%s: the SPIR-V is damaged: a function %s",
                     module->name, begins ? "inside another" : "ends that has not begun");
        module->in_function = begins;
        return TSR_OK;
    }
    default:
        return TSR_OK;
    }
}

/* Workgroup sizes given by constants -----------------------------------------------------------
 *
 * These functions require that the lengths of all instructions have been checked. */

static tsr_status check_size_of(const checked_module *module, const uint32_t *ids)
{
    uint32_t size[3];
    for (int i = 0; i < 3; i++)
        TSR__REQUIRE(tsr__spirv_constant_value(&module->code, ids[i], &size[i]),
                     "%s: the SPIR-V is damaged: a workgroup size is %%%u, not a 32-bit constant",
                     module->name, (unsigned)ids[i]);
    return check_local_size(module, size);
}

static tsr_status check_constant_sizes(const checked_module *module)
{
    if (module->size_mode)
        TSR__TRY(check_size_of(module, module->size_mode + 3));
    if (!module->size_built_in)
        return TSR_OK;
    const uint32_t *vector = tsr__spirv_find_constant(&module->code, module->size_built_in[1]);
    const uint32_t op = vector ? vector[0] & 0xffff : 0;
    TSR__REQUIRE(
        (op == OP_CONSTANT_COMPOSITE || op == OP_SPEC_CONSTANT_COMPOSITE) && vector[0] >> 16 == 6,
        "%s: the SPIR-V is damaged: WorkgroupSize is %%%u, not a vector of three constants",
        module->name, (unsigned)module->size_built_in[1]);
    return check_size_of(module, vector + 3);
}

tsr_status tsr__spirv_check(const tsr_device_info *info, const char *name, const uint32_t *words,
                            uint64_t count, const uint32_t *constants, int constant_count,
                            uint32_t push_bytes)
{
    checked_module module = {
        .info = info,
        .name = name,
        .code = {.words = words,
                 .count = (size_t)count,
                 .spec = constants,
                 .spec_count = (uint32_t)constant_count},
    };
    TSR__TRY(check_header(name, words, count));
    for (uint64_t at = TSR__SPIRV_HEADER; at < count;) {
        uint32_t length = words[at] >> 16;
        TSR__REQUIRE(length > 0 && length <= count - at,
                     "%s: the SPIR-V is damaged: an instruction of %u words at word %llu of %llu",
                     name, (unsigned)length, (unsigned long long)at, (unsigned long long)count);
        TSR__TRY(check_instruction(&module, words + at, length));
        at += length;
    }
    TSR__REQUIRE(!module.in_function, "%s: the SPIR-V is damaged: its last function does not end",
                 name);
    TSR__REQUIRE(module.has_main, "%s: it has no compute entry point called \"main\"", name);
    TSR__TRY(check_constant_sizes(&module));
    uint64_t block = tsr__spirv_push_bytes(&module.code);
    TSR__REQUIRE(
        block <= push_bytes,
        "%s: its push constants are %llu bytes; the tensors' addresses and the scalars are "
        "%u",
        name, (unsigned long long)block, (unsigned)push_bytes);
    return TSR_OK;
}
