/* The output of `tessera sample`. Numbers are written as soon as they are known, because there may
 * be billions of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/sample/sample.h"

/* In text, follows an index that only pads a rank's share, with TSR_TAIL_PAD_MASK. */
#define MARK '*'

sample_output sample_output_start(sample_format format, const char *kind)
{
    if (format == SAMPLE_JSON)
        printf("{\"schema\": \"tessera.sample\", \"schema_version\": 1, \"tessera\": \"%s\", "
               "\"kind\": \"%s\"",
               tsr_version(), kind);
    return (sample_output){.format = format};
}

void sample_output_member(sample_output *output, const char *name, int64_t value)
{
    if (output->format == SAMPLE_JSON)
        printf(", \"%s\": %" PRId64, name, value);
}

void sample_output_open(sample_output *output, const char *list)
{
    if (output->format == SAMPLE_JSON)
        printf(", \"%s\": [", list);
    output->any = output->any_batch = false;
}

void sample_output_close(sample_output *output)
{
    if (output->format == SAMPLE_JSON)
        putchar(']');
}

/* Writes a number. printf is not used, because it would take most of the time. */
static void write_decimal(int64_t value, char after)
{
    char text[32], *start = text + sizeof text;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (after != '\0')
        *--start = after;
    do
        *--start = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0)
        *--start = '-';
    fwrite(start, 1, (size_t)(text + sizeof text - start), stdout);
}

static void write_bytes(int64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    fwrite(bytes, sizeof bytes, 1, stdout);
}

/* Writes a number. In JSON, writes the comma before it too. */
static void write_number(sample_output *output, int64_t value, char after)
{
    if (output->format == SAMPLE_I64) {
        write_bytes(value);
        return;
    }
    if (output->format == SAMPLE_JSON && output->any)
        fputs(", ", stdout);
    write_decimal(value, output->format == SAMPLE_TEXT ? after : '\0');
    output->any = true;
}

void sample_output_value(sample_output *output, int64_t value)
{
    write_number(output, value, '\n');
}

void sample_output_values(sample_output *output, const int64_t *values, const uint8_t *mask,
                          uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        bool marked = output->format == SAMPLE_TEXT && mask != NULL && mask[i] == 0;
        write_number(output, values[i], marked ? MARK : '\n');
        if (marked)
            putchar('\n');
    }
}

void sample_output_batch(sample_output *output, const int64_t *values, const uint8_t *mask,
                         uint64_t count)
{
    if (output->format == SAMPLE_JSON)
        fputs(output->any_batch ? ", [" : "[", stdout);
    output->any_batch = true;
    output->any = false;
    for (uint64_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count, marked = mask != NULL && mask[i] == 0;
        char after = is_last ? '\n' : ' ';
        write_number(output, values[i], marked ? MARK : after);
        if (marked && output->format == SAMPLE_TEXT)
            putchar(after);
    }
    if (output->format == SAMPLE_JSON)
        putchar(']');
}

void sample_output_finish(sample_output *output)
{
    if (output->format == SAMPLE_JSON)
        puts("}");
}
