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

int checked_output(const char *program, int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (code == 0)
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program, strerror(errno));
    return code == 0 ? 1 : code;
}
