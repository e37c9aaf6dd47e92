/* What `tessera sample` prints. Written as it comes, since there may be billions of numbers. */
#include <inttypes.h>

#include "cli/sample.h"

sample_output sample_output_start(sample_format format, const char *kind, const char *member)
{
    if (format == SAMPLE_JSON)
        printf("{\"schema\": \"tessera.sample\", \"schema_version\": 1, \"tessera\": \"%s\", "
               "\"kind\": \"%s\", \"%s\": [",
               tsr_version(), kind, member);
    return (sample_output){.format = format};
}

void sample_output_value(sample_output *output, int64_t value)
{
    uint8_t bytes[8];
    switch (output->format) {
    case SAMPLE_TEXT:
        printf("%" PRId64 "\n", value);
        break;
    case SAMPLE_JSON:
        printf("%s%" PRId64, output->any ? ", " : "", value);
        break;
    case SAMPLE_I64:
        for (int i = 0; i < 8; i++)
            bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
        fwrite(bytes, sizeof bytes, 1, stdout);
        break;
    }
    output->any = true;
}

void sample_output_finish(sample_output *output)
{
    if (output->format == SAMPLE_JSON)
        puts("]}");
}
