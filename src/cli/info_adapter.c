#include "cli/info_adapter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/terminal.h"
#include "tool_seam.h"

typedef struct findings {
    int64_t rank;
    double alpha;
    uint64_t tensors, bytes, parameters;
    const char **targets; /* [target_count]: the parts of layers, such as q_proj; they point into
                             `names` */
    int target_count;
    char *names;
    const char *missing; /* the tensor whose other half is not there; NULL: none */
} findings;

static bool exists(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &info) == 0;
}

static bool is_folder_of_adapter(const char *path)
{
    return exists(path, "adapter_config.json") && !exists(path, "config.json");
}

/* Returns where ".lora_A" or ".lora_a" is in a tensor's name, and sets *half to its letter. */
static const char *find_half(const char *name, char *half)
{
    const char *at = strstr(name, ".lora_");
    *half = at != NULL ? at[6] : '\0';
    return at;
}

/* Sets the name of the other half of a tensor. Returns false for a tensor that is not one of two.
 */
static bool other_half(const char *name, char *other, size_t size)
{
    char half;
    const char *at = find_half(name, &half);
    if (at == NULL || strchr("ABab", half) == NULL || half == '\0' || strlen(name) >= size)
        return false;
    strcpy(other, name);
    other[at + 6 - name] = (char)(half == 'A' || half == 'a' ? half + 1 : half - 1);
    return true;
}

/* Adds the last part of the module's name, such as q_proj or attn_q, unless `seen` has it. */
static void add_target(findings *f, const char *name, json_t *seen, char **end)
{
    char half;
    const char *stop = find_half(name, &half), *start = stop;
    if (stop != NULL && stop - name > 7 && strncmp(stop - 7, ".weight", 7) == 0)
        start = stop -= 7;
    while (start != NULL && start > name && start[-1] != '.')
        start--;
    if (start == NULL)
        return;
    const size_t length = (size_t)(stop - start);
    memcpy(*end, start, length);
    (*end)[length] = '\0';
    if (json_object_get(seen, *end) != NULL)
        return;
    json_object_set_new_nocheck(seen, *end, json_true());
    f->targets[f->target_count++] = *end;
    *end += length + 1;
}

/* Returns whether a tensor has the magnitudes (DoRA) of a weight. */
static bool has_magnitudes(const tsr__adapter_file *a, const tsr_shard_param *p)
{
    return a->config.dora && strstr(p->name, ".lora_magnitude_vector") != NULL;
}

static void find(const tsr__adapter_file *a, findings *f)
{
    const tsr_shard_list *list = a->files.list;
    size_t names = 0;
    f->tensors = tsr_shard_list_param_count(list);
    for (uint64_t i = 0; i < f->tensors; i++)
        names += strlen(tsr_shard_list_param(list, i)->name) + 1;
    f->names = cli_alloc(names, 1);
    f->targets = cli_alloc((size_t)f->tensors, sizeof *f->targets);
    char *end = f->names;
    json_t *seen = json_object();
    f->rank = a->config.rank;
    f->alpha = a->config.alpha;
    for (uint64_t i = 0; i < f->tensors; i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        char other[TSR_SHARD_MAX_NAME + 1], half;
        f->bytes += p->size_bytes;
        f->parameters += p->count;
        add_target(f, p->name, seen, &end);
        if (f->rank == 0 && find_half(p->name, &half) != NULL && half == 'a')
            f->rank = p->shape[p->ndim > 2 ? 1 : 0]; /* of experts: [experts, rank, in] */
        if (f->missing == NULL && !has_magnitudes(a, p) &&
            (!other_half(p->name, other, sizeof other) ||
             tsr__model_files_find(&a->files, other) == NULL))
            f->missing = p->name;
    }
    json_decref(seen);
}

static void print_text(const tsr__adapter_file *a, const findings *f)
{
    char bytes[CLI_BYTES_TEXT];
    cli_line(stdout, "%-14s%s, %s", "adapter", a->config.dora ? "DoRA" : "LoRA",
             a->files.gguf ? "GGUF" : "PEFT");
    if (a->architecture[0] != '\0')
        cli_line(stdout, "%-14s%s", "architecture", a->architecture);
    cli_line(stdout, "%-14s%" PRIu64, "parameters", f->parameters);
    cli_line(stdout, "%-14s%" PRId64, "rank", f->rank);
    cli_line(stdout, "%-14s%g%s", "alpha", f->alpha,
             a->config.rank_stabilised ? ", by the root of the rank" : "");
    for (int i = 0; i < f->target_count; i++)
        cli_line(stdout, "%-14s%s", i == 0 ? "weights" : "", f->targets[i]);
    cli_line(stdout, "%-14s%" PRIu64 ", %s", "tensors", f->tensors, cli_bytes(f->bytes, bytes));
    if (f->missing != NULL)
        cli_line(stdout, "%-14sthe other half of %s", "missing", f->missing);
    else
        cli_line(stdout, "%-14snothing", "missing");
}

static void print_json(const tsr__adapter_file *a, const findings *f)
{
    json_t *document = cli_json_document("tessera.info", 1);
    cli_json_text(document, "adapter", a->files.gguf ? "gguf" : "peft");
    cli_json_add(document, "architecture",
                 a->architecture[0] != '\0' ? json_string(a->architecture) : json_null());
    cli_json_u64(document, "parameters", f->parameters);
    cli_json_u64(document, "rank", (uint64_t)f->rank);
    cli_json_real(document, "alpha", f->alpha);
    cli_json_bool(document, "rank_stabilised", a->config.rank_stabilised);
    cli_json_bool(document, "dora", a->config.dora);
    json_t *targets = cli_json_add_array(document, "weights");
    for (int i = 0; i < f->target_count; i++)
        cli_json_append(targets, json_string(f->targets[i]));
    cli_json_u64(document, "tensors", f->tensors);
    cli_json_u64(document, "bytes", f->bytes);
    cli_json_add(document, "missing", f->missing != NULL ? json_string(f->missing) : json_null());
    cli_json_print(document);
}

bool info_adapter(const char *path, bool as_json, int *code)
{
    tsr__adapter_file *a = cli_alloc(1, sizeof *a);
    const bool is_folder = is_folder_of_adapter(path);
    const tsr_status status = tsr__adapter_file_open(path, a);
    if (status == TSR_OK) {
        findings found = {0};
        find(a, &found);
        if (as_json)
            print_json(a, &found);
        else
            print_text(a, &found);
        free(found.names);
        free((void *)found.targets);
        *code = CLI_DONE;
    } else if (is_folder) {
        *code = cli_failed_in("info", tsr_last_error());
    }
    tsr__adapter_file_finish(a);
    free(a);
    return status == TSR_OK || is_folder;
}
