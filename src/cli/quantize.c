/* tessera quantize: converts rows of floats to block formats and back. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/memory.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "tessera/quant.h"

#define MAX_COLUMNS 268435456

static const tsr_quant_format *format;
static bool raw, back;
static int64_t columns;

static bool read_type(void *user, const char *value, char *problem, size_t size)
{
    (void)user;
    int used = snprintf(problem, size, "takes");
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        if (strcmp(value, format->name) == 0)
            return true;
        if (used >= 0 && (size_t)used < size)
            used += snprintf(problem + used, size - (size_t)used, "%s %s", i > 0 ? "," : "",
                             format->name);
    }
    if (used >= 0 && (size_t)used < size)
        snprintf(problem + used, size - (size_t)used, ", not '%.40s'", value);
    return false;
}

static const cli_option options[] = {
    {"type", "TYPE",
     "the block format: q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k or mxfp4; with "
     "--dequantize also nvfp4, iq4_nl, iq4_xs, iq3_s, iq3_xxs, iq2_s, iq2_xs, iq2_xxs, tq1_0 or "
     "tq2_0",
     .read = read_type},
    {"columns", "N", "elements of a row, whole blocks of the format", .integer = &columns, .low = 1,
     .high = MAX_COLUMNS},
    {"raw", NULL,
     "standard input is little-endian f32 numbers, standard output is blocks, both without "
     "headers; this option must be given",
     .flag = &raw},
    {"dequantize", NULL, "the other way: standard input is blocks, standard output is f32 numbers",
     .flag = &back},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(out, "Converts rows of 32-bit floats to blocks of small integers with common scales, "
                  "as GGUF files hold them, or back. The bytes are those of llama.cpp's reference "
                  "functions. Rows are converted one after the other; if one cannot be, those "
                  "before it have been written. 'tessera convert --type' quantises a model.\n");
    cli_options_help(out, options);
}

/* Converts a row of little-endian floats from the file to floats. */
static void decode(const uint8_t *bytes, float *values)
{
    for (int64_t i = 0; i < columns; i++, bytes += 4) {
        const uint32_t bits = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                              (uint32_t)bytes[3] << 24;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static void encode(const float *values, uint8_t *bytes)
{
    for (int64_t i = 0; i < columns; i++, bytes += 4) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int j = 0; j < 4; j++)
            bytes[j] = (uint8_t)(bits >> (8 * j));
    }
}

static tsr_status convert(const uint8_t *in, float *values, uint8_t *out, uint64_t block_bytes)
{
    if (!back) {
        decode(in, values);
        return tsr_quantize(format->dtype, values, columns, out, block_bytes);
    }
    tsr_status status = tsr_dequantize(format->dtype, in, block_bytes, values, columns);
    if (status == TSR_OK)
        encode(values, out);
    return status;
}

static int convert_rows(uint8_t *in, uint64_t in_bytes, float *values, uint8_t *out,
                        uint64_t out_bytes)
{
    for (int64_t row = 0;; row++) {
        size_t got = fread(in, 1, in_bytes, stdin);
        if (ferror(stdin))
            return cli_failed("quantize: cannot read standard input: %s", strerror(errno));
        if (got == 0)
            return CLI_DONE;
        if (got < in_bytes)
            return cli_failed("quantize: row %" PRId64 " has %zu bytes instead of %" PRIu64, row,
                              got, in_bytes);
        if (convert(in, values, out, back ? in_bytes : out_bytes) != TSR_OK)
            return cli_failed("%s, in row %" PRId64, tsr_last_error(), row);
        if (fwrite(out, 1, out_bytes, stdout) < out_bytes)
            return cli_failed("cannot write to standard output: %s", strerror(errno));
    }
}

static int run(int argc, char **argv)
{
    int words;
    uint64_t block_bytes;
    int code = cli_options_read("quantize", options, argc, argv, 0, NULL, &words);
    if (code != CLI_DONE)
        return code;
    if (format == NULL)
        return cli_usage_error("quantize: missing --type TYPE");
    if (columns == 0)
        return cli_usage_error("quantize: missing --columns N");
    if (!raw)
        return cli_usage_error("quantize: missing --raw; other forms of input are not supported");
    if (!back && !format->quantizes)
        return cli_usage_error("quantize: %s is supported only with --dequantize", format->name);
    if (tsr_quant_bytes(format->dtype, columns, &block_bytes) != TSR_OK)
        return cli_usage_error("quantize: --columns %" PRId64 " is not a multiple of %d, as %s "
                               "needs",
                               columns, format->block_count, format->name);

    const uint64_t float_bytes = 4 * (uint64_t)columns;
    uint8_t *in = cli_alloc(float_bytes, 1), *out = cli_alloc(float_bytes, 1);
    float *values = cli_alloc((size_t)columns, sizeof *values);
    code = back ? convert_rows(in, block_bytes, values, out, float_bytes)
                : convert_rows(in, float_bytes, values, out, block_bytes);
    free(in);
    free(out);
    free(values);
    return code;
}

const cli_command cli_quantize = {
    .name = "quantize",
    .usage = "--type TYPE --columns N --raw [--dequantize]",
    .summary = "convert rows of floats to block formats and back",
    .run = run,
    .help = help,
};
