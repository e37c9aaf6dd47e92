/* Reads adapters: PEFT folders and GGUF files. All tensors are checked before anything is attached.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/lora/files.h"
#include "model/weights/reader.h"

typedef struct loading {
    tsr_lora *lora;
    tsr__adapter_file file;
} loading;

/* Modules ------------------------------------------------------------------------------------ */

/* Checks that all experts of the module that was added last have A and B of the rank and alpha of
 * the first expert. */
static tsr_status check_experts(loading *l, const tsr__parameter *p,
                                const tsr__adapter_module *first)
{
    const tsr__lora_module *m = &l->lora->modules[l->lora->module_count - 1];
    for (int64_t e = 0; e < m->experts; e++) {
        tsr__adapter_module own;
        TSR__TRY(tsr__adapter_file_find(&l->file, l->lora->stack->config, m->layer, p, e, &own));
        if (!first->a || !own.a)
            return tsr__fail(TSR_ERR_NOT_FOUND,
                             "lora: layer %d has an adapter of %s for some experts, but not for "
                             "expert %" PRId64,
                             m->layer, p->ours, first->a ? e : 0);
        if (own.rank != first->rank || own.alpha != first->alpha)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "lora: tensor %s has rank %" PRId64
                             " and alpha %g, but that of expert "
                             "0 has %" PRId64 " and %g; all experts need the same",
                             own.a->name, own.rank, own.alpha, first->rank, first->alpha);
    }
    return TSR_OK;
}

/* Finds whether the file has an adapter of any expert of a parameter, and that of the first one. */
static tsr_status find_any(loading *l, int layer, const tsr__parameter *p, bool *found,
                           tsr__adapter_module *first)
{
    tsr__adapter_module own;
    *found = false;
    for (int64_t e = 0; !*found && e < (p->experts > 0 ? p->experts : 1); e++) {
        TSR__TRY(tsr__adapter_file_find(&l->file, l->lora->stack->config, layer, p, e, &own));
        *found = own.a != NULL;
        if (e == 0)
            *first = own;
    }
    return TSR_OK;
}

/* If the weight that was added last has one A with the weight before it in the layers, checks that
 * the file says so too: a GGUF file can have q, k and v of a delta net in one tensor and z in
 * another, where folders have one tensor for all. */
static tsr_status check_same_a(loading *l, const tsr__adapter_module *last)
{
    const tsr_lora *lora = l->lora;
    const tsr__lora_module *m = &lora->modules[lora->module_count - 1];
    char names[2][TSR__LORA_NAME];
    tsr__parameter p;
    tsr__adapter_module before;
    float *a[2] = {NULL, NULL}, *b[2] = {NULL, NULL};
    if (lora->module_count < 2 || m->experts > 0)
        return TSR_OK;
    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__lora_parameter_name(lora->stack, m - i, 'A', names[i]));
    if (strcmp(names[0], names[1]) != 0 ||
        !tsr__lora_find_parameter(lora, m[-1].layer, m[-1].target, &p))
        return TSR_OK;
    TSR__TRY(tsr__adapter_file_find(&l->file, lora->stack->config, m[-1].layer, &p, 0, &before));
    if (before.a == last->a)
        return TSR_OK;
    tsr_status status = tsr__adapter_file_read(&l->file, last, &a[0], &b[0]);
    if (status == TSR_OK)
        status = tsr__adapter_file_read(&l->file, &before, &a[1], &b[1]);
    if (status == TSR_OK &&
        (last->rank != before.rank ||
         memcmp(a[0], a[1], (size_t)(last->rank * last->inputs) * sizeof *a[0]) != 0))
        status = tsr__fail(TSR_ERR_UNSUPPORTED,
                           "lora: tensors %s and %s differ, but layers of %s have one A for both",
                           before.a->name, last->a->name, lora->stack->config->architecture);
    for (int i = 0; i < 2; i++) {
        tsr__free(a[i]);
        tsr__free(b[i]);
    }
    return status;
}

/* Adds a weight of the model as a module if the file has an adapter for it. */
static tsr_status find_module(loading *l, int layer, int target)
{
    tsr_lora *lora = l->lora;
    tsr__parameter p;
    tsr__adapter_module first;
    bool found = false;
    if (!tsr__lora_find_parameter(lora, layer, target, &p))
        return TSR_OK;
    TSR__TRY(find_any(l, layer, &p, &found, &first));
    if (!found)
        return TSR_OK;
    TSR__TRY(tsr__lora_add_module(lora, layer, target, &p));
    lora->modules[lora->module_count - 1].rank = first.rank;
    lora->modules[lora->module_count - 1].alpha = first.alpha;
    TSR__TRY(check_same_a(l, &first));
    return p.experts > 0 ? check_experts(l, &p, &first) : TSR_OK;
}

static tsr_status find_modules(loading *l)
{
    tsr_lora *lora = l->lora;
    const int layers = lora->stack->config->layers;
    for (int i = 0; i <= layers; i++)
        for (int t = 0; t < TSR__LORA_TARGETS; t++)
            TSR__TRY(find_module(l, i < layers ? i : -1, t));
    TSR__TRY(tsr__adapter_file_check_used(&l->file, lora->stack->config));
    const tsr__lora_config *config = &l->file.config;
    lora->rank = config->rank > 0 ? (int)config->rank : (int)lora->modules[0].rank;
    lora->alpha = config->alpha > 0 ? config->alpha : lora->modules[0].alpha;
    lora->rank_stabilised = config->rank_stabilised;
    lora->dora = config->dora;
    return TSR_OK;
}

/* Values ------------------------------------------------------------------------------------- */

/* Reads this rank's part of the magnitudes. */
static tsr_status read_magnitudes(tsr__weight_reader *reader, const tsr__adapter_module *m,
                                  const tsr_parameter *p)
{
    const tsr__weight weight = {.file = m->m,
                                .first_row = m->first_row,
                                .rows = m->outputs,
                                .all_rows = m->all_rows,
                                .columns = 1,
                                .row_step = 1,
                                .row_order = m->row_order};
    const tsr__weight_part part = {.first_row = p->shard_dim == 0 ? p->offset : 0,
                                   .rows = p->shard_dim == 0 ? p->length : m->outputs,
                                   .columns = 1};
    return part.rows > 0 ? tsr__weight_read(reader, &weight, &part, p->tensor) : TSR_OK;
}

/* Reads this rank's part of A or B of one expert, or of the only matrix, into `to`. */
static tsr_status read_half(tsr__weight_reader *reader, const tsr__adapter_module *m, bool is_b,
                            const tsr_parameter *p, tsr_tensor *to)
{
    const int first = p->ndim - 2;
    const int64_t rows = p->global_shape[first], columns = p->global_shape[first + 1];
    const tsr__weight weight = {.file = is_b ? m->b : m->a,
                                .first_row = is_b ? m->first_row : 0,
                                .rows = rows,
                                .all_rows = is_b ? m->all_rows : m->rank,
                                .columns = columns,
                                .row_step = 1,
                                .matrices = m->matrices,
                                .matrix = m->matrix,
                                .interleaved_head = is_b ? m->interleaved_head : 0,
                                .row_order = is_b ? m->row_order : (tsr__order){0},
                                .column_order = is_b ? (tsr__order){0} : m->column_order};
    tsr__weight_part part = {.rows = rows, .columns = columns};
    if (p->shard_dim == first) {
        part.first_row = p->offset;
        part.rows = p->length;
    } else if (p->shard_dim == first + 1) {
        part.first_column = p->offset;
        part.columns = p->length;
    }
    return part.rows * part.columns > 0 ? tsr__weight_read(reader, &weight, &part, to) : TSR_OK;
}

/* Reads this rank's part of A or B of one expert. */
static tsr_status read_expert(tsr__weight_reader *reader, const tsr__adapter_module *m, bool is_b,
                              const tsr_parameter *p, int64_t expert)
{
    const int64_t own = p->shard_dim == 0 ? expert - p->offset : expert;
    tsr_tensor *matrix = NULL;
    if (own < 0 || own >= (p->shard_dim == 0 ? p->length : p->global_shape[0]))
        return TSR_OK;
    TSR__TRY(tsr_tensor_select(p->tensor, 0, own, &matrix));
    const tsr_status status = read_half(reader, m, is_b, p, matrix);
    tsr_tensor_destroy(&matrix); /* the parameter keeps its memory */
    return status;
}

static tsr_status read_module(loading *l, tsr__weight_reader *reader, const tsr__lora_module *m)
{
    const tsr_stack *s = l->lora->stack;
    const tsr_parameter *half[2] = {NULL, NULL};
    char name[TSR__LORA_NAME];
    tsr__parameter p;
    tsr__adapter_module found;
    if (!tsr__lora_layer(s, m->layer))
        return TSR_OK;
    for (int i = 0; i < 2; i++) {
        TSR__TRY(tsr__lora_parameter_name(s, m, i == 0 ? 'A' : 'B', name));
        TSR__TRY(tsr_layer_find_parameter(l->lora->adapter.layer, name, &half[i]));
    }
    TSR__REQUIRE(tsr__lora_find_parameter(l->lora, m->layer, m->target, &p),
                 "lora: layer %d has no %s", m->layer, tsr__lora_targets[m->target].ours);
    for (int64_t e = 0; e < (m->experts > 0 ? m->experts : 1); e++) {
        TSR__TRY(tsr__adapter_file_find(&l->file, s->config, m->layer, &p, e, &found));
        for (int i = 0; i < 2; i++)
            TSR__TRY(m->experts > 0 ? read_expert(reader, &found, i == 1, half[i], e)
                                    : read_half(reader, &found, i == 1, half[i], half[i]->tensor));
    }
    if (!found.m)
        return TSR_OK;
    const tsr_parameter *magnitudes = NULL;
    TSR__TRY(tsr__lora_parameter_name(s, m, 'M', name));
    TSR__TRY(tsr_layer_find_parameter(l->lora->adapter.layer, name, &magnitudes));
    TSR__TRY(read_magnitudes(reader, &found, magnitudes));
    return TSR_OK;
}

static tsr_status read_values(loading *l)
{
    const tsr_stack *s = l->lora->stack;
    tsr__weight_reader reader;
    tsr__weight_reader_init(&l->file.files, s->stream,
                            tsr_comm_local_size(tsr_group_comm(s->group)), &reader);
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

static tsr_status take_file(loading *l)
{
    TSR__TRY(tsr__adapter_file_check_family(&l->file, l->lora->stack->family));
    TSR__TRY(find_modules(l));
    TSR__TRY(tsr__lora_attach(l->lora, NULL));
    return read_values(l);
}

static tsr_status load(loading *l, const char *path)
{
    tsr_status status = tsr__adapter_file_open(path, &l->file);
    if (status == TSR_OK)
        status = take_file(l);
    tsr__adapter_file_finish(&l->file);
    return status;
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
    if (status == TSR_OK) {
        tsr__lora_freeze(l->lora);
        *out = l->lora;
    } else {
        tsr_lora_destroy(&l->lora);
    }
    tsr__free(l);
    return status;
}
