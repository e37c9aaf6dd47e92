/* Reads adapters: PEFT folders and GGUF files. All tensors are checked before anything is attached.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/lora/lora.h"
#include "model/weights/elements.h"
#include "model/weights/reader.h"
#include "tensor/check.h"

#define MAX_RANK 65536

typedef struct loading {
    tsr_lora *lora;
    tsr__model_files files;
    tsr__lora_config config;
    bool *is_used; /* [tensors of the file] */
} loading;

/* The configuration -------------------------------------------------------------------------- */

/* Reads the metadata of a GGUF adapter. */
static tsr_status read_metadata(loading *l, tsr__file *file)
{
    enum { TYPE, KIND, ARCHITECTURE, ALPHA, COUNT };
    const char *family = l->lora->stack->family->gguf;
    char text[TSR_SHARD_MAX_NAME + 1];
    tsr__gguf_value values[COUNT] = {[TYPE] = {.key = "general.type"},
                                     [KIND] = {.key = "adapter.type"},
                                     [ARCHITECTURE] = {.key = "general.architecture"},
                                     [ALPHA] = {.key = "adapter.lora.alpha"}};
    TSR__TRY(tsr__gguf_look_up(file, &l->files.list->keys, values, COUNT));
    for (int i = 0; i < COUNT; i++)
        TSR__REQUIRE(values[i].found, "lora: %s has no %s", l->files.weights, values[i].key);
    TSR__TRY(tsr__gguf_name_of(file, &values[TYPE], text));
    TSR__REQUIRE(strcmp(text, "adapter") == 0, "lora: general.type is '%s', not adapter", text);
    TSR__TRY(tsr__gguf_name_of(file, &values[KIND], text));
    if (strcmp(text, "lora") != 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "lora: adapter.type is '%s'; lora is supported",
                         text);
    TSR__TRY(tsr__gguf_name_of(file, &values[ARCHITECTURE], text));
    TSR__REQUIRE(strcmp(text, family) == 0,
                 "lora: the adapter is for architecture '%s'; the model's is '%s'", text, family);
    TSR__TRY(tsr__gguf_real(file, &values[ALPHA], &l->config.alpha));
    TSR__REQUIRE(l->config.alpha >= 0 && l->config.alpha <= TSR__LORA_MAX_ALPHA,
                 "lora: adapter.lora.alpha is %g", l->config.alpha);
    return TSR_OK;
}

static tsr_status open_gguf(loading *l, const char *path)
{
    tsr__file file;
    TSR__TRY(tsr__model_files_open_weights(path, &l->files));
    TSR__REQUIRE(l->files.gguf, "lora: %s is neither a PEFT folder nor a GGUF file", path);
    TSR__TRY(tsr__file_open(l->files.weights, &file));
    file.what = "gguf";
    const tsr_status status = read_metadata(l, &file);
    tsr__file_close(&file);
    return status;
}

static tsr_status open_peft(loading *l, const char *folder)
{
    char *config = tsr__path_join(folder, "/adapter_config.json"),
         *weights = tsr__path_join(folder, "/adapter_model.safetensors");
    tsr_status status = config && weights ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__lora_config_read(config, &l->config);
    if (status == TSR_OK)
        status = tsr__model_files_open_weights(weights, &l->files);
    tsr__free(config);
    tsr__free(weights);
    return status;
}

/* Modules ------------------------------------------------------------------------------------ */

/* Finds A or B of a module in the file, and marks it as used. */
static const tsr_shard_param *find_half(loading *l, const tsr__lora_place *place, char which,
                                        char name[TSR__LORA_NAME])
{
    tsr__lora_file_name(place, l->files.gguf, which, name);
    const tsr_shard_param *found = tsr__model_files_find(&l->files, name);
    if (found)
        l->is_used[found - tsr_shard_list_param(l->files.list, 0)] = true;
    return found;
}

static tsr_status check_half(const tsr_shard_param *half, int64_t rows, int64_t columns)
{
    TSR__TRY(tsr__elements_check(half));
    TSR__REQUIRE(half->ndim == 2 && half->shape[0] == rows && half->shape[1] == columns,
                 "lora: tensor %s is %s; the model needs %s", half->name,
                 TSR__SHAPE(half->ndim, half->shape), TSR__SHAPE(2, ((int64_t[]){rows, columns})));
    return TSR_OK;
}

/* Checks both halves of the module that was added last, and sets its rank and alpha. */
static tsr_status take_module(loading *l, const tsr__lora_place *place, const tsr_shard_param *a,
                              const tsr_shard_param *b)
{
    tsr_lora *lora = l->lora;
    tsr__lora_module *m = &lora->modules[lora->module_count - 1];
    const int64_t rank = a->ndim == 2 ? a->shape[0] : 0;
    TSR__REQUIRE(rank >= 1 && rank <= MAX_RANK,
                 "lora: tensor %s is %s; [rank, %" PRId64 "] is needed", a->name,
                 TSR__SHAPE(a->ndim, a->shape), m->inputs);
    TSR__TRY(check_half(a, rank, m->inputs));
    TSR__TRY(check_half(b, place->all_rows, rank));
    m->rank = rank;
    if (l->files.gguf) { /* as llama.cpp: without alpha, the scale is 1 */
        m->alpha = l->config.alpha > 0 ? l->config.alpha : (double)rank;
        return TSR_OK;
    }
    const double wanted = tsr__lora_pattern_value(l->config.ranks, l->config.rank_count,
                                                  place->name, (double)l->config.rank);
    TSR__REQUIRE((double)rank == wanted,
                 "lora: tensor %s has rank %" PRId64 "; adapter_config.json says %g", a->name, rank,
                 wanted);
    m->alpha = tsr__lora_pattern_value(l->config.alphas, l->config.alpha_count, place->name,
                                       l->config.alpha);
    return TSR_OK;
}

/* Adds a weight of the model as a module if the file has an adapter for it. */
static tsr_status find_module(loading *l, int layer, int target)
{
    tsr_lora *lora = l->lora;
    char name_a[TSR__LORA_NAME], name_b[TSR__LORA_NAME];
    tsr__lora_place place;
    bool added = false;
    TSR__TRY(tsr__lora_add_module(lora, layer, target, &added));
    if (!added)
        return TSR_OK;
    TSR__TRY(tsr__lora_find_place(lora->stack, &lora->modules[lora->module_count - 1],
                                  l->files.gguf, &place));
    const tsr_shard_param *a = find_half(l, &place, 'A', name_a),
                          *b = find_half(l, &place, 'B', name_b);
    if (!a && !b) {
        lora->module_count--;
        return TSR_OK;
    }
    if (!a || !b)
        return tsr__fail(TSR_ERR_NOT_FOUND, "lora: the file has %s, but not its other half, %s",
                         a ? name_a : name_b, a ? name_b : name_a);
    return take_module(l, &place, a, b);
}

static tsr_status find_modules(loading *l)
{
    tsr_lora *lora = l->lora;
    const uint64_t count = tsr_shard_list_param_count(l->files.list);
    TSR__REQUIRE(count > 0, "lora: the file has no tensors");
    l->is_used = tsr__calloc((size_t)count, sizeof *l->is_used);
    if (!l->is_used)
        return TSR_ERR_NO_MEMORY;
    const int layers = lora->stack->config->layers;
    for (int i = 0; i <= layers; i++)
        for (int t = 0; t < TSR__LORA_TARGETS; t++)
            TSR__TRY(find_module(l, i < layers ? i : -1, t));
    for (uint64_t i = 0; i < count; i++)
        TSR__REQUIRE(l->is_used[i],
                     "lora: the model has no weight for the adapter's tensor %s (%d layers of %s)",
                     tsr_shard_list_param(l->files.list, i)->name, lora->stack->config->layers,
                     lora->stack->config->architecture);
    lora->rank = l->config.rank > 0 ? (int)l->config.rank : (int)lora->modules[0].rank;
    lora->alpha = l->config.alpha > 0 ? l->config.alpha : lora->modules[0].alpha;
    lora->rank_stabilised = l->config.rank_stabilised;
    return TSR_OK;
}

/* Values ------------------------------------------------------------------------------------- */

/* Reads this rank's part of A or B. `first_row` is where the module's rows are in the tensor. */
static tsr_status read_half(tsr__weight_reader *reader, const tsr_shard_param *half,
                            int64_t first_row, int64_t interleaved_head, const tsr_parameter *p)
{
    const tsr__weight weight = {.file = half,
                                .first_row = first_row,
                                .rows = p->global_shape[0],
                                .all_rows = half->shape[0],
                                .columns = p->global_shape[1],
                                .row_step = 1,
                                .interleaved_head = interleaved_head};
    tsr__weight_part part = {.rows = p->global_shape[0], .columns = p->global_shape[1]};
    if (p->shard_dim == 0) {
        part.first_row = p->offset;
        part.rows = p->length;
    } else if (p->shard_dim == 1) {
        part.first_column = p->offset;
        part.columns = p->length;
    }
    return part.rows * part.columns > 0 ? tsr__weight_read(reader, &weight, &part, p->tensor)
                                        : TSR_OK;
}

static tsr_status read_module(loading *l, tsr__weight_reader *reader, const tsr__lora_module *m)
{
    const tsr_stack *s = l->lora->stack;
    const tsr_parameter *a = NULL, *b = NULL;
    char name[TSR__LORA_NAME];
    tsr__lora_place place;
    if (!tsr__lora_layer(s, m->layer))
        return TSR_OK;
    TSR__TRY(tsr__lora_parameter_name(s, m, 'A', name));
    TSR__TRY(tsr_layer_find_parameter(l->lora->adapter.layer, name, &a));
    TSR__TRY(tsr__lora_parameter_name(s, m, 'B', name));
    TSR__TRY(tsr_layer_find_parameter(l->lora->adapter.layer, name, &b));
    TSR__TRY(tsr__lora_find_place(s, m, l->files.gguf, &place));
    TSR__TRY(read_half(reader, find_half(l, &place, 'A', name), 0, 0, a));
    return read_half(reader, find_half(l, &place, 'B', name), place.first_row,
                     place.interleaved_head, b);
}

static tsr_status read_values(loading *l)
{
    const tsr_stack *s = l->lora->stack;
    tsr__weight_reader reader;
    tsr__weight_reader_init(&l->files, s->stream, tsr_comm_local_size(tsr_group_comm(s->group)),
                            &reader);
    tsr_status status = TSR_OK;
    for (size_t i = 0; status == TSR_OK && i < l->lora->module_count; i++)
        status = read_module(l, &reader, &l->lora->modules[i]);
    if (status == TSR_OK)
        status = tsr__weight_read_rest(&reader);
    if (status == TSR_OK)
        status = tsr_stream_wait(s->stream);
    tsr__weight_reader_finish(&reader);
    return status;
}

static tsr_status load(loading *l, const char *path)
{
    struct stat info;
    TSR__TRY(stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? open_peft(l, path)
                                                             : open_gguf(l, path));
    TSR__TRY(find_modules(l));
    TSR__TRY(tsr__lora_attach(l->lora, NULL));
    return read_values(l);
}

tsr_status tsr_lora_load(const char *path, const tsr_lora_params *params, tsr_lora **out)
{
    TSR__REQUIRE(path && params && out, "lora: %s is NULL",
                 !path    ? "path"
                 : params ? "out"
                          : "params");
    TSR__TAKE(tsr_lora_params, params);
    TSR__TRY(tsr__lora_check(params));
    loading *l = tsr__calloc(1, sizeof *l);
    if (!l)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__lora_new(params, &l->lora);
    if (status == TSR_OK)
        status = load(l, path);
    tsr__lora_config_finish(&l->config);
    tsr__model_files_finish(&l->files);
    tsr__free(l->is_used);
    if (status == TSR_OK) {
        tsr__lora_freeze(l->lora);
        *out = l->lora;
    } else {
        tsr_lora_destroy(&l->lora);
    }
    tsr__free(l);
    return status;
}
