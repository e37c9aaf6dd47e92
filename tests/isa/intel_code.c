/* Reads machine code of Intel's GPUs as the Vulkan driver of Mesa 26.2 prints it, here without some
 * operands:
 *
 *     L6:
 *     (W) add (8)        r38:d r2<0>:d 120:d {Compacted}
 *         send.slm (16)  r1 r69 null:0 … {$15} // wr:1+0, rd:4; load.slm.d32x4.a32
 *         mad (16)       r98:f r40:f r28:f r24<1>:f {$15.dst}
 *     (f0.0) if (16)     jip:L8 uip:L9
 *
 * An instruction computes as many lanes as its number in brackets says. A load has a token, and an
 * instruction with ".dst" after a token waits for the result. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isa/program.h"

/* Blocks without a label, such as those after a jump, get numbers from this one on. */
#define UNNAMED 100000

/* Returns the number of the label after the text `before`, for example of "jip:L8", or −1. */
static int label_after(const char *line, const char *before)
{
    const char *at = strstr(line, before);

    return at && isdigit((unsigned char)at[strlen(before)]) ? atoi(at + strlen(before)) : -1;
}

/* Returns the bytes per lane of an access such as "load.ugm.d32x4.a64" or "a64_untyped_read:xy
 * simd8". Sets *uniform if the whole subgroup makes one access ("d32x16t"). */
static int bytes_of(const char *access, bool *uniform)
{
    const char *element = strstr(access, ".d"), *channels = strchr(access, ':');
    int bits = 32, count = 1, end = 0;
    char transposed = '\0';

    *uniform = false;
    if (strstr(access, "untyped_") && channels)
        return 4 * (int)strspn(channels + 1, "xyzw");
    if (!element)
        return 2; /* the comments of scattered accesses name no width */
    sscanf(element, ".d%d%n", &bits, &end);
    sscanf(element + end, "u32%n", &end);
    const char *times = strchr(element + 1, 'x');
    if (times)
        sscanf(times, "x%d%c", &count, &transposed);
    *uniform = transposed == 't';
    return bits / 8 * count;
}

/* Returns the kind and width of a memory access ("send"), from the comment at the end of its
 * line. */
static isa_instruction message(const char *line, double weight)
{
    const char *semicolon = strrchr(line, ';');
    const char *access = semicolon ? semicolon + 2 : "";
    const bool shared = strstr(access, ".slm.") || strstr(access, "bti(254)");
    const bool global = strstr(access, ".a64") || isa_begins(access, "a64_") || *access == '?';
    const bool reads = strstr(access, "load") || strstr(access, "read") ||
                       (*access == '?' && !strstr(line, "rd:0"));
    bool uniform;

    if (strstr(access, "fence") || strstr(access, "barrier") || (!shared && !global))
        return (isa_instruction){ISA_OTHER, 0, weight}; /* e.g. registers in scratch memory */
    const int width = isa_width_index(bytes_of(access, &uniform));
    if (uniform)
        return (isa_instruction){ISA_SALU, 0, weight};
    if (strstr(access, "atomic"))
        return (isa_instruction){shared ? ISA_LDS_READ : ISA_STORE, width, weight};
    if (shared)
        return (isa_instruction){reads ? ISA_LDS_READ : ISA_LDS_WRITE, width, weight};
    return (isa_instruction){reads ? ISA_LOAD : ISA_STORE, width, weight};
}

/* Returns true if the destination, which is the first operand, is a float. */
static bool is_float(const char *operands)
{
    char destination[32];

    return sscanf(operands, " %31s", destination) == 1 &&
           (strstr(destination, ":f") || strstr(destination, ":hf"));
}

static isa_instruction classify(const char *op, const char *operands, const char *line,
                                double weight)
{
    int depth, repeats;

    if (isa_begins(op, "send"))
        return message(line, weight);
    if (sscanf(op, "dpas.%dx%d", &depth, &repeats) == 2) /* each step takes two 16-bit elements */
        return (isa_instruction){ISA_MATRIX, 2 * depth * repeats, weight};
    if ((isa_begins(op, "mad") || isa_begins(op, "mac")) && is_float(operands))
        return (isa_instruction){ISA_FMA, 1, weight};
    if (isa_begins(op, "sync") || isa_begins(op, "nop"))
        return (isa_instruction){ISA_OTHER, 0, weight};
    return (isa_instruction){strstr(line, ":q") || strstr(line, ":uq") ? ISA_ADDRESS : ISA_VALU, 1,
                             weight};
}

/* Returns tokens in a line as bits: with `waits`, the tokens of the results for which the line
 * waits; otherwise the tokens that it sets. */
static uint32_t tokens_of(const char *line, bool waits)
{
    uint32_t tokens = 0;

    for (const char *at = line; (at = strchr(at, '$')) != NULL; at++) {
        int token = 0, end = 0;
        if (sscanf(at, "$%d%n", &token, &end) != 1 || token < 0 || token > 31)
            continue;
        const bool waited = isa_begins(at + end, ".dst"), own = at[end] != '.';
        if (waits ? waited : own)
            tokens |= UINT32_C(1) << token;
    }
    return tokens;
}

static void add_with_wait(isa_program *p, isa_instruction instruction, const char *line)
{
    const uint32_t own = tokens_of(line, false);

    if (tokens_of(line, true) & p->loading)
        isa_add(p, (isa_instruction){ISA_WAIT, 0, 1});
    p->loading &= ~(tokens_of(line, true) | own);
    if (instruction.kind == ISA_LOAD)
        p->loading |= own;
    isa_add(p, instruction);
}

/* Ends the block if the instruction is a jump. The jump at the end of a loop falls through when all
 * lanes have left the loop. */
static bool jump(isa_program *p, const char *op, const char *line)
{
    if (strcmp(op, "if") == 0 || strcmp(op, "else") == 0)
        isa_jump(p, label_after(line, "jip:L"), *op == 'i');
    else if (strcmp(op, "break") == 0)
        isa_jump(p, label_after(line, "uip:L"), true);
    else if (strcmp(op, "while") == 0)
        isa_jump(p, label_after(line, " L"), true);
    else
        return true;
    return isa_add_block(p, UNNAMED + p->block_count);
}

bool isa_intel_line(isa_program *p, const char *line, const isa_gpu *gpu)
{
    char op[32];
    int label, lanes, end = 0;

    if (sscanf(line, "L%d:", &label) == 1)
        return isa_add_block(p, label);
    if (p->block_count == 0 && !isa_add_block(p, UNNAMED))
        return false;
    if (*line == '(')
        line += strcspn(line, ")") + (strchr(line, ')') != NULL);
    if (sscanf(line, " %31[a-z0-9_.] (%d)%n", op, &lanes, &end) != 2 || end == 0)
        return true;
    const int computed = lanes > gpu->native ? lanes : gpu->native;
    add_with_wait(p, classify(op, line + end, line, (double)computed / gpu->width), line);
    if (strstr(line, "EOT"))
        isa_jump(p, -1, false);
    return jump(p, op, line);
}
