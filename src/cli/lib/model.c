#include "cli/lib/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "tessera/quant.h"

static bool is_float(tsr_dtype dtype)
{
    return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16;
}

bool cli_read_matrix_dtype(void *user, const char *text, char *problem, size_t size)
{
    tsr_dtype dtype;
    const bool known = tsr_dtype_parse(text, &dtype) == TSR_OK;
    const tsr_quant_format *format = known ? tsr_quant_format_of(dtype) : NULL;
    if (known && (is_float(dtype) || (format != NULL && format->quantizes))) {
        *(tsr_dtype *)user = dtype;
        return true;
    }
    int used = snprintf(problem, size, "takes f32, f16, bf16");
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++)
        if (format->quantizes && used >= 0 && (size_t)used < size)
            used += snprintf(problem + used, size - (size_t)used, ", %s", format->name);
    if (used >= 0 && (size_t)used < size)
        snprintf(problem + used, size - (size_t)used, ", not '%.40s'", text);
    return false;
}

bool cli_read_float_dtype(void *user, const char *text, char *problem, size_t size)
{
    tsr_dtype dtype;
    const bool good = tsr_dtype_parse(text, &dtype) == TSR_OK && is_float(dtype);
    if (good)
        *(tsr_dtype *)user = dtype;
    else
        snprintf(problem, size, "takes f32, f16 or bf16, not '%.40s'", text);
    return good;
}

bool cli_read_rates(void *user, const char *text, char *problem, size_t size)
{
    cli_rates *out = user;
    char *copy = cli_alloc(strlen(text) + 1, 1), *rest = copy;
    bool good = true;
    strcpy(copy, text);
    free(out->values);
    *out = (cli_rates){.values = cli_alloc(strlen(text) + 1, sizeof *out->values)};
    while (rest != NULL && good) {
        char *comma = strchr(rest, ',');
        if (comma != NULL)
            *comma++ = '\0';
        good = cli_read_real(rest, 0, 1e18, &out->values[out->count++]);
        rest = comma;
    }
    free(copy);
    if (!good)
        snprintf(problem, size, "takes a number per rank, such as 3,1, not '%.80s'", text);
    return good;
}

bool cli_rates_fit(const cli_rates *rates, int ranks, char *problem, size_t size)
{
    if (rates->count == 0 || rates->count == ranks)
        return true;
    snprintf(problem, size, "--rates has %d value%s for %d rank%s", rates->count,
             rates->count == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
    return false;
}
