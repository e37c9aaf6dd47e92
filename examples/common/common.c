#include "common/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool wrong_option(const char *program, const char *what, const char *value)
{
    fprintf(stderr, "%s: %s%s; see %s --help\n", program, what, value, program);
    return false;
}

bool parse_int(const char *program, const char *name, const char *text, int least, int most,
               int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        fprintf(stderr, "%s: --%s takes a number from %d to %d, not %s; see %s --help\n", program,
                name, least, most, text, program);
        return false;
    }
    *out = (int)value;
    return true;
}

bool parse_dtype(const char *program, const char *text, tsr_dtype *out)
{
    static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        if (strcmp(text, tsr_dtype_name(floats[i])) == 0) {
            *out = floats[i];
            return true;
        }
    }
    return wrong_option(program, "--dtype takes f32, f16 or bf16, not ", text);
}

bool parse_number(const char *program, const char *name, const char *text, double least,
                  double *out)
{
    const double most = 1e9; /* fits a float, and in ns 64 bits */
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "%s: --%s takes a number from %g to %g, not %s; see %s --help\n", program,
                name, least, most, text, program);
        return false;
    }
    *out = value;
    return true;
}

bool parse_seed(const char *program, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return wrong_option(program, "--seed takes a whole number of 64 bits, not ", text);
    *out = value;
    return true;
}

/* Parses a grid such as "2x1". */
bool parse_grid(const char *program, const char *text, int *data, int *tensor)
{
    char *end;
    long d = strtol(text, &end, 10), t = 0;
    if (end != text && *end == 'x') {
        const char *second = end + 1;
        t = strtol(second, &end, 10);
    }
    if (*end != '\0' || d < 1 || t < 1 || d > TSR_MAX_COMM_SIZE || t > TSR_MAX_COMM_SIZE)
        return wrong_option(program, "--grid takes DATAxTENSOR ranks, as 2x1, not ", text);
    *data = (int)d;
    *tensor = (int)t;
    return true;
}

bool parse_strategy(const char *program, const char *text, const char **out)
{
    tsr_shard_kind kind;
    if (strcmp(text, "none") != 0 && tsr_shard_kind_parse(text, &kind) != TSR_OK)
        return wrong_option(
            program, "--strategy takes none, full, layerwise, hybrid or weighted, not ", text);
    *out = text;
    return true;
}

int checked_output(const char *program, int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (code == 0)
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program, strerror(errno));
    return code == 0 ? 1 : code;
}
