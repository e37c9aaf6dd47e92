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
    const double most = 1e9; /* exact as a float, and as nanoseconds it fits 64 bits */
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

/* Parses a grid such as "2x1": data-parallel × tensor-parallel ranks. */
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

/* Reads until the end of the file. Returns NULL, or a description of the error. */
static const char *read_open(FILE *file, size_t max_size, char **bytes, size_t *size)
{
    size_t capacity = 0;
    while (*size < max_size) {
        if (*size == capacity) {
            capacity = capacity ? 2 * capacity : (size_t)1 << 16;
            char *larger = realloc(*bytes, capacity);
            if (!larger)
                return "out of memory";
            *bytes = larger;
        }
        size_t got = fread(*bytes + *size, 1, capacity - *size, file);
        *size += got;
        if (got == 0)
            return ferror(file) ? strerror(errno) : NULL;
    }
    return "too large";
}

bool read_file(const char *path, size_t max_size, char **bytes, size_t *size, char *error,
               size_t error_size)
{
    FILE *file = fopen(path, "rb");
    char *read = NULL;
    size_t length = 0;
    const char *wrong = file ? read_open(file, max_size, &read, &length) : strerror(errno);
    if (file && wrong && length >= max_size)
        snprintf(error, error_size, "%s: larger than %zu MiB", path, max_size >> 20);
    else if (wrong)
        snprintf(error, error_size, "%s: %s", path, wrong);
    if (file)
        fclose(file);
    if (wrong) {
        free(read);
        return false;
    }
    *bytes = read;
    *size = length;
    return true;
}

tsr_status create_like(tsr_device *device, const tsr_tensor *like, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(like);
    return tsr_tensor_create(device, layout->dtype, layout->ndim, layout->shape, out);
}

int checked_output(const char *program, int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (code == 0)
        fprintf(stderr, "%s: cannot write to standard output: %s\n", program, strerror(errno));
    return code == 0 ? 1 : code;
}

bool path_beside(const char *beside, const char *name, size_t size, char *path)
{
    const char *slash = strrchr(beside, '/');
    const int folder = slash ? (int)(slash - beside) + 1 : 0;
    return (size_t)snprintf(path, size, "%.*s%s", folder, beside, name) < size;
}
