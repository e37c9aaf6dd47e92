/* Reads machine code of AMD's GPUs as RADV prints it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isa/program.h"

/* Returns the width of a memory instruction in bytes per lane, from its name. Instructions with
 * two offsets move twice as much. */
static int width_of(const char *op)
{
    static const struct {
        const char *part;
        int bytes;
    } parts[] = {{"b128", 16}, {"dwordx4", 16}, {"b96", 12}, {"dwordx3", 12}, {"b64", 8},
                 {"x2", 8},    {"u16", 2},      {"i16", 2},  {"b16", 2},      {"short", 2},
                 {"u8", 1},    {"i8", 1},       {"b8", 1},   {"byte", 1}};
    int bytes = 4;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(op, parts[i].part)) {
            bytes = parts[i].bytes;
            break;
        }
    bool two = strstr(op, "read2") || strstr(op, "write2") || strstr(op, "2addr");
    return isa_width_index(two ? 2 * bytes : bytes);
}

static isa_instruction memory(const char *op, isa_kind load, isa_kind store)
{
    bool loads = strstr(op, "load") || strstr(op, "read");
    bool stores = strstr(op, "store") || strstr(op, "write");

    if (!loads && !stores) /* an atomic operation, or an exchange between lanes */
        return (isa_instruction){load == ISA_LDS_READ ? ISA_LDS_READ : ISA_STORE,
                                 isa_width_index(4), 1};
    return (isa_instruction){loads ? load : store, width_of(op), 1};
}

/* Returns true for "v_fma_f32", "v_fmac_f16_e32" and so on, whose operands are floats. */
static bool multiplies_and_adds(const char *op)
{
    static const char *const names[] = {"v_fma",   "v_mac",   "v_mad_f",
                                        "v_madmk", "v_madak", "v_mad_mix"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (isa_begins(op, names[i]))
            return true;
    return false;
}

static bool is_64_bit(const char *op)
{
    return strstr(op, "_co_ci_") || isa_begins(op, "v_addc_") || strstr(op, "lshlrev_b64") ||
           strstr(op, "lshl_b64") || strstr(op, "_u64_u32") || strstr(op, "lshl_add_u64");
}

/* Reads v_dual_…, which holds two operations separated by "::". */
static isa_instruction dual(const char *op, const char *line)
{
    const char *second = strstr(line, "::");
    int pairs = isa_begins(op, "v_dual_dot2acc") + (second && strstr(second, "v_dual_dot2acc"));
    int fma = isa_begins(op, "v_dual_fma") + (second && strstr(second, "v_dual_fma"));

    if (pairs > 0)
        return (isa_instruction){ISA_PAIRS, pairs, 1};
    return (isa_instruction){fma ? ISA_FMA : ISA_VALU, fma, 1};
}

static isa_instruction classify(const char *op, const char *line)
{
    if (isa_begins(op, "v_dual_"))
        return dual(op, line);
    if (isa_begins(op, "v_pk_fma_f16") || isa_begins(op, "v_dot2"))
        return (isa_instruction){ISA_PAIRS, 1, 1};
    if (isa_begins(op, "v_wmma_") && strstr(op, "_16x16x16_"))
        return (isa_instruction){ISA_MATRIX, 16 * 16 * 16 / 32, 1};
    if (multiplies_and_adds(op))
        return (isa_instruction){ISA_FMA, 1, 1};
    if (isa_begins(op, "v_"))
        return (isa_instruction){is_64_bit(op) ? ISA_ADDRESS : ISA_VALU, 1, 1};
    if (isa_begins(op, "ds_"))
        return memory(op, ISA_LDS_READ, ISA_LDS_WRITE);
    if (isa_begins(op, "global_") || isa_begins(op, "flat_") || isa_begins(op, "buffer_") ||
        isa_begins(op, "scratch_"))
        return isa_begins(op, "buffer_gl") ? (isa_instruction){ISA_OTHER, 0, 1}
                                           : memory(op, ISA_LOAD, ISA_STORE);
    if (isa_begins(op, "s_waitcnt"))
        return (isa_instruction){strstr(line, "vmcnt(") ? ISA_WAIT : ISA_OTHER, 0, 1};
    if (isa_begins(op, "s_wait_loadcnt"))
        return (isa_instruction){ISA_WAIT, 0, 1};
    if (isa_begins(op, "s_nop") || isa_begins(op, "s_delay") || isa_begins(op, "s_clause") ||
        isa_begins(op, "s_barrier") || isa_begins(op, "s_wait"))
        return (isa_instruction){ISA_OTHER, 0, 1};
    return (isa_instruction){ISA_SALU, 1, 1};
}

/* A line that begins with "BB" begins a block. Lines before the first block are not code. */
bool isa_amd_line(isa_program *p, const char *line)
{
    char op[64];

    if (isa_begins(line, "BB") && isdigit((unsigned char)line[2]))
        return isa_add_block(p, atoi(line + 2));
    if (p->block_count == 0 || sscanf(line, " %63[a-z0-9_]", op) != 1)
        return true;
    if (isa_begins(op, "s_branch") || isa_begins(op, "s_cbranch")) {
        const char *to = strstr(line, "BB");
        isa_jump(p, to ? atoi(to + 2) : -1, isa_begins(op, "s_cbranch"));
    }
    if (isa_begins(op, "s_endpgm"))
        isa_jump(p, -1, false);
    isa_add(p, classify(op, line));
    return true;
}
