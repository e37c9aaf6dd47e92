#include "cli/lib/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"
#include "tessera/lora.h"
#include "tessera/model.h"
#include "tessera/quant.h"
#include "tessera/types.h"

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

int cli_failed_with_file(const char *command, const char *text, const char *path)
{
    static const char config[] = "config.json";
    char sentence[4096];
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (strcmp(name, config) != 0)
        return cli_failed_in(command, text);
    snprintf(sentence, sizeof sentence, "%s; %s belongs to a model: give its folder, %.*s", text,
             path, slash != NULL ? (int)(slash - path) : 1, slash != NULL ? path : ".");
    return cli_failed_in(command, sentence);
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

bool cli_read_cache_dtype(void *user, const char *text, char *problem, size_t size)
{
    tsr_dtype dtype;
    const bool good = tsr_dtype_parse(text, &dtype) == TSR_OK &&
                      (is_float(dtype) || dtype == TSR_Q8_0 || dtype == TSR_Q4_0);
    if (good)
        *(tsr_dtype *)user = dtype;
    else
        snprintf(problem, size, "takes f32, f16, bf16, q8_0 or q4_0, not '%.40s'", text);
    return good;
}

bool cli_read_precision(void *user, const char *text, char *problem, size_t size)
{
    static const char *const names[] = {
        [TSR_PRECISION_HIGHEST] = "highest",
        [TSR_PRECISION_HIGH] = "high",
        [TSR_PRECISION_MEDIUM] = "medium",
    };
    for (int i = TSR_PRECISION_HIGHEST; i <= TSR_PRECISION_MEDIUM; i++)
        if (strcmp(text, names[i]) == 0) {
            *(tsr_precision *)user = (tsr_precision)i;
            return true;
        }
    snprintf(problem, size, "takes highest, high or medium, not '%.40s'", text);
    return false;
}

/* Calls `read` for each of the values that commas separate in `text`, until one is wrong. Returns
 * whether all are right. */
static bool read_list(const char *text, bool (*read)(void *out, const char *value), void *out)
{
    char *copy = cli_alloc(strlen(text) + 1, 1), *rest = copy;
    bool good = true;
    strcpy(copy, text);
    while (rest != NULL && good) {
        char *comma = strchr(rest, ',');
        if (comma != NULL)
            *comma++ = '\0';
        good = read(out, rest);
        rest = comma;
    }
    free(copy);
    return good;
}

const char *cli_expert_division_name(tsr_expert_division division)
{
    static const char *const names[] = {[TSR_EXPERT_DIVISION_AUTO] = "auto",
                                        [TSR_EXPERT_DIVISION_INSIDE] = "inside",
                                        [TSR_EXPERT_DIVISION_WHOLE] = "whole",
                                        [TSR_EXPERT_DIVISION_MIXED] = "mixed"};
    return names[division];
}

/* What a value of --experts may have once each. */
typedef struct experts_value {
    cli_experts *experts;
    bool has_division, has_host;
} experts_value;

static bool add_experts(void *out, const char *value)
{
    experts_value *parts = out;
    cli_experts *experts = parts->experts;
    int64_t layers = INT_MAX;
    if (strncmp(value, "host", 4) == 0) {
        const bool good = !parts->has_host &&
                          (value[4] == '\0' ||
                           (value[4] == ':' && cli_read_integer(value + 5, 1, INT_MAX, &layers)));
        parts->has_host = true;
        experts->host = (int)layers;
        return good;
    }
    for (int i = TSR_EXPERT_DIVISION_AUTO; i <= TSR_EXPERT_DIVISION_MIXED; i++) {
        const char *name = cli_expert_division_name((tsr_expert_division)i);
        const size_t length = strlen(name);
        const bool over_hosts = i == TSR_EXPERT_DIVISION_AUTO || i == TSR_EXPERT_DIVISION_MIXED;
        int64_t hosts = 0;
        if (strncmp(value, name, length) != 0)
            continue;
        if (value[length] != '\0' &&
            !(over_hosts && value[length] == ':' &&
              cli_read_integer(value + length + 1, 1, TSR_MODEL_PLAN_MAX_RANKS, &hosts)))
            return false;
        if (parts->has_division)
            return false;
        parts->has_division = true;
        experts->division = (tsr_expert_division)i;
        experts->hosts = (int)hosts;
        return true;
    }
    return false;
}

int *cli_experts_hosts(const cli_experts *experts, int stages, int ranks)
{
    const int each = ranks / stages;
    if (experts->hosts == 0 && !(experts->unmixed && experts->division == TSR_EXPERT_DIVISION_AUTO))
        return NULL;
    const int count = experts->hosts < each ? experts->hosts : each;
    int *hosts = cli_alloc((size_t)ranks, sizeof *hosts);
    for (int r = 0; r < ranks; r++)
        hosts[r] = (int)((int64_t)(r % each) * count / each);
    return hosts;
}

bool cli_read_experts(void *user, const char *text, char *problem, size_t size)
{
    experts_value parts = {.experts = user};
    *parts.experts = (cli_experts){.given = true};
    if (read_list(text, add_experts, &parts))
        return true;
    snprintf(problem, size,
             "takes auto, inside, whole or mixed, also as auto:HOSTS or mixed:HOSTS, host or "
             "host:LAYERS, or both with a comma, not '%.80s'",
             text);
    return false;
}

static bool add_rate(void *out, const char *value)
{
    cli_rates *rates = out;
    return cli_read_real(value, 0, 1e18, &rates->values[rates->count++]);
}

bool cli_read_rates(void *user, const char *text, char *problem, size_t size)
{
    cli_rates *out = user;
    free(out->values);
    *out = (cli_rates){.measured = strcmp(text, "measured") == 0};
    if (out->measured)
        return true;
    out->values = cli_alloc(strlen(text) + 1, sizeof *out->values);
    if (read_list(text, add_rate, out))
        return true;
    snprintf(problem, size, "takes a number per rank, such as 3,1, or 'measured', not '%.80s'",
             text);
    return false;
}

static bool add_layers(void *out, const char *value)
{
    cli_layers *layers = out;
    int64_t count;
    if (!cli_read_integer(value, 1, INT_MAX, &count))
        return false;
    layers->values[layers->count++] = (int)count;
    return true;
}

bool cli_read_layers(void *user, const char *text, char *problem, size_t size)
{
    cli_layers *out = user;
    free(out->values);
    *out = (cli_layers){.values = cli_alloc(strlen(text) + 1, sizeof *out->values)};
    if (read_list(text, add_layers, out))
        return true;
    snprintf(problem, size, "takes a number of layers per stage, such as 10,12, not '%.80s'", text);
    return false;
}

static bool add_memory(void *out, const char *value)
{
    cli_memory *memory = out;
    return cli_read_bytes(value, &memory->values[memory->count++]);
}

bool cli_read_memory(void *user, const char *text, char *problem, size_t size)
{
    cli_memory *out = user;
    free(out->values);
    *out = (cli_memory){.values = cli_alloc(strlen(text) + 1, sizeof *out->values)};
    if (read_list(text, add_memory, out))
        return true;
    snprintf(problem, size, "takes bytes, such as 8G, 512M or 1.5TiB, not '%.80s'", text);
    return false;
}

/* Adapters ------------------------------------------------------------------------------------- */

/* Returns the number of the word at the start of `text` in names[count], or −1. Sets *next to what
 * follows the word and a comma. */
static int find_word(const char *text, const char *const *names, int count, const char **next)
{
    const size_t length = strcspn(text, ",");
    *next = text + length + (text[length] == ',');
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && strncmp(text, names[i], length) == 0)
            return i;
    return -1;
}

enum { TARGETS = 9 };
static const struct {
    const char *name;
    unsigned flag;
} targets_of[TARGETS] = {{"q", TSR_LORA_Q},       {"k", TSR_LORA_K},
                         {"v", TSR_LORA_V},       {"o", TSR_LORA_O},
                         {"gate", TSR_LORA_GATE}, {"up", TSR_LORA_UP},
                         {"down", TSR_LORA_DOWN}, {"experts", TSR_LORA_EXPERTS},
                         {"head", TSR_LORA_HEAD}};

void cli_print_targets(unsigned targets, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < TARGETS && used < size; i++)
        if (targets & targets_of[i].flag)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? "," : "",
                                     targets_of[i].name);
}

bool cli_read_targets(void *user, const char *value, char *problem, size_t size)
{
    const char *names[TARGETS];
    unsigned targets = 0;
    for (int i = 0; i < TARGETS; i++)
        names[i] = targets_of[i].name;
    for (const char *rest = value; rest[0] != '\0' || rest == value;) {
        const int found = find_word(rest, names, TARGETS, &rest);
        if (found < 0) {
            snprintf(problem, size,
                     "takes q, k, v, o, gate, up, down, experts and head, separated by commas, not "
                     "'%.40s'",
                     value);
            return false;
        }
        targets |= targets_of[found].flag;
    }
    *(unsigned *)user = targets;
    return true;
}

bool cli_read_draft(void *user, const char *text, char *problem, size_t size)
{
    static const char ngram[] = "ngram", mtp[] = "mtp";
    cli_draft *draft = user;
    const char *colon = strrchr(text, ':');
    size_t length = strlen(text);
    int64_t tokens = 0;
    if (colon != NULL && cli_read_integer(colon + 1, INT32_MIN, INT32_MAX, &tokens)) {
        length = (size_t)(colon - text);
        if (tokens < 1 || tokens > TSR_MAX_DRAFT_TOKENS) {
            snprintf(problem, size, "takes 1 to %d tokens, not '%.40s'", TSR_MAX_DRAFT_TOKENS,
                     colon + 1);
            return false;
        }
    }
    if (length == 0 || (strncmp(text, "ngram:", 6) == 0 && length > 5) ||
        (strncmp(text, "mtp:", 4) == 0 && length > 3)) {
        snprintf(problem, size, "takes ngram, mtp or a model, each perhaps with :N, not '%.40s'",
                 text);
        return false;
    }
    free(draft->path);
    draft->path = NULL;
    draft->from = TSR_DRAFT_NGRAM;
    draft->tokens = (int)tokens;
    if (length == sizeof ngram - 1 && strncmp(text, ngram, length) == 0)
        return true;
    draft->from = TSR_DRAFT_MTP;
    if (length == sizeof mtp - 1 && strncmp(text, mtp, length) == 0)
        return true;
    draft->from = TSR_DRAFT_MODEL;
    draft->path = cli_alloc(length + 1, 1);
    memcpy(draft->path, text, length);
    return true;
}
