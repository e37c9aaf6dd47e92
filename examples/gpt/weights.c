#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

/* Describes a parameter of the model for the functions of names.h. */
static void describe(const tsr_parameter *p, gpt_parameter *out)
{
    snprintf(out->name, sizeof out->name, "%s", p->name);
    out->ndim = p->ndim;
    out->rows = p->global_shape[0];
    out->columns = p->ndim == 2 ? p->global_shape[1] : 1;
}

/* Loading ------------------------------------------------------------------------------------ */

/* A complete tensor of the file, as [out, in]. */
typedef struct file_tensor {
    char name[GPT_NAME_MAX]; /* "": none */
    tsr_tensor *tensor;
} file_tensor;

typedef struct loading {
    gpt_model *model;
    const char *path;
    tsr_shard_list *list;
    /* The last matrix and the last vector that were read, because GPT-2's q, k and v, which come
     * one after the other, are in one matrix and one vector. */
    file_tensor matrix, vector;
    char *error;
    size_t error_size;
} loading;

static file_tensor *place_of(loading *l, const gpt_parameter *p)
{
    return p->ndim == 2 ? &l->matrix : &l->vector;
}

static tsr_status read_complete(loading *l, const gpt_parameter *p, const gpt_place *where)
{
    file_tensor *to = place_of(l, p);
    bool transposed;
    tsr_dtype dtype;
    const tsr_shard_param *file = names_in_file(l->path, l->list, &l->model->config, p, where,
                                                &transposed, l->error, l->error_size);
    if (!file)
        return TSR_ERR_INVALID;
    TRY(tsr_dtype_parse(file->dtype, &dtype));
    tsr_tensor_destroy(&to->tensor);
    *to->name = '\0';
    TRY(tsr_tensor_create(l->model->job->device, dtype, file->ndim, file->shape, &to->tensor));
    tsr_checkpoint_entry entry = {.name = file->name,
                                  .dtype = dtype,
                                  .ndim = file->ndim,
                                  .shard_dim = -1,
                                  .count = file->count,
                                  .tensor = to->tensor};
    memcpy(entry.shape, file->shape, (size_t)file->ndim * sizeof *entry.shape);
    TRY(tsr_checkpoint_load(l->path, NULL, l->model->job->stream, 1, &entry, NULL));
    if (transposed) {
        tsr_tensor *view = NULL;
        TRY(tsr_tensor_transpose(to->tensor, 0, 1, &view));
        tsr_tensor_destroy(&to->tensor);
        to->tensor = view;
    }
    snprintf(to->name, sizeof to->name, "%s", where->name);
    return TSR_OK;
}

/* Slices the part that tensor parallelism gives this rank. */
static tsr_status slice_part(const tsr_tensor *all, const gpt_place *where, const tsr_parameter *p,
                             tsr_tensor **out)
{
    int64_t rows = p->global_shape[0];
    tsr_tensor *own = NULL;
    TRY(tsr_tensor_slice(all, 0, where->first_row, where->first_row + rows, 1, &own));
    tsr_status status = p->shard_dim < 0 ? tsr_tensor_slice(own, 0, 0, rows, 1, out)
                                         : tsr_tensor_slice(own, p->shard_dim, p->offset,
                                                            p->offset + p->length, 1, out);
    tsr_tensor_destroy(&own);
    return status;
}

/* Copies the elements that sharding gives this rank, a range of the part in row-major order. */
static tsr_status store(const loading *l, const tsr_tensor *part, const tsr_fsdp_shard *shard)
{
    const tsr_layout *layout = tsr_tensor_layout(part);
    tsr_stream *stream = l->model->job->stream;
    int64_t count = 1;
    tsr_tensor *dense = NULL, *flat = NULL, *own = NULL;
    for (int d = 0; d < layout->ndim; d++)
        count *= layout->shape[d];
    TRY(tsr_tensor_create(l->model->job->device, layout->dtype, layout->ndim, layout->shape,
                          &dense));
    tsr_status status = tsr_copy(stream, dense, part);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(dense, 1, &count, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_slice(flat, 0, (int64_t)shard->range.start,
                                  (int64_t)(shard->range.start + shard->range.count), 1, &own);
    if (status == TSR_OK)
        status = tsr_copy(stream, shard->value, own);
    tsr_tensor_destroy(&own);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&dense);
    return status;
}

static tsr_status load_parameter(loading *l, const gpt_unit *unit, int index)
{
    const tsr_parameter *p = tsr_fsdp_parameter(unit->sharded, unit->number, index);
    tsr_fsdp_shard shard;
    tsr_tensor *part = NULL;
    gpt_parameter described;
    gpt_place where;
    describe(p, &described);
    names_find(&l->model->config, &described, &where);
    TRY(tsr_fsdp_shard_of(unit->sharded, unit->first + (uint64_t)index, &shard));
    const file_tensor *from = place_of(l, &described);
    if (strcmp(where.name, from->name) != 0)
        TRY(read_complete(l, &described, &where));
    if (!shard.value)
        return TSR_OK;
    TRY(slice_part(from->tensor, &where, p, &part));
    tsr_status status = store(l, part, &shard);
    tsr_tensor_destroy(&part);
    return status;
}

static tsr_status load_all(loading *l)
{
    const gpt_model *m = l->model;
    TRY(tsr_shard_list_open(l->path, &l->list));
    for (int u = 0; u < m->unit_count; u++) {
        const gpt_unit *unit = &m->units[u];
        for (int i = 0; i < tsr_fsdp_parameter_count(unit->sharded, unit->number); i++)
            TRY(load_parameter(l, unit, i));
    }
    if (m->tied)
        TRY(tsr_fsdp_changed(m->tied));
    return tsr_fsdp_changed(m->sharded);
}

tsr_status weights_load(gpt_model *model, const char *path, char *error, size_t error_size)
{
    loading l = {.model = model, .path = path, .error = error, .error_size = error_size};
    *error = '\0';
    tsr_status status = load_all(&l);
    if (status != TSR_OK && *error == '\0')
        snprintf(error, error_size, "%s", tsr_last_error());
    tsr_tensor_destroy(&l.matrix.tensor);
    tsr_tensor_destroy(&l.vector.tensor);
    tsr_shard_list_destroy(&l.list);
    return status;
}

/* Saving ------------------------------------------------------------------------------------- */

typedef struct saving {
    gpt_model *model;
    tsr_checkpoint_entry *entries;
    tsr_tensor **owned; /* [count]: the tensors of the entries */
    gpt_place *places;
    int count, capacity;
} saving;

/* Returns the number of the entry for a tensor of the file, or −1. */
static int find_entry(const saving *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->places[i].name, name) == 0)
            return i;
    return -1;
}

/* Finds the entry for a tensor of the file, or adds one with where->rows rows. */
static tsr_status add_entry(saving *s, const gpt_place *where, tsr_dtype dtype, int ndim,
                            int64_t columns, tsr_tensor **memory)
{
    int at = find_entry(s, where->name);
    if (at >= 0) {
        *memory = s->owned[at];
        return TSR_OK;
    }
    at = s->count;
    int64_t shape[2] = {where->rows, columns};
    tsr_checkpoint_entry *entry = &s->entries[at];
    TRY(tsr_tensor_create(s->model->job->device, dtype, ndim, shape, &s->owned[at]));
    s->places[at] = *where;
    s->count++;
    *entry = (tsr_checkpoint_entry){.name = s->places[at].name,
                                    .dtype = dtype,
                                    .ndim = ndim,
                                    .shard_dim = -1,
                                    .count = (uint64_t)(where->rows * columns)};
    memcpy(entry->shape, shape, sizeof shape);
    *memory = s->owned[at];
    return TSR_OK;
}

/* Gathers a complete parameter from all ranks of a row. Learned positions need no gathering,
 * because every rank has them. The embedding of GPT-2 is lent to its layer for the call. */
static tsr_status gather(gpt_model *m, const gpt_unit *unit, int index, tsr_tensor **out)
{
    const tsr_parameter *p = tsr_fsdp_parameter(unit->sharded, unit->number, index);
    if (!unit->layer)
        return tsr_tensor_slice(p->tensor, 0, 0, p->global_shape[0], 1, out);
    if (unit->sharded != m->tied)
        return tsr_layer_gather_parameter(unit->layer, index, out);
    TRY(tsr_layer_set_parameter(m->embedding, 0, p->tensor, NULL, false));
    tsr_status status = tsr_layer_gather_parameter(m->embedding, 0, out);
    if (status == TSR_OK)
        status = tsr_layer_set_parameter(m->embedding, 0, NULL, NULL, false);
    return status;
}

static tsr_status keep(saving *s, const gpt_unit *unit, int index)
{
    const tsr_parameter *p = tsr_fsdp_parameter(unit->sharded, unit->number, index);
    tsr_tensor *complete = NULL, *memory, *rows = NULL;
    gpt_parameter described;
    gpt_place where;
    describe(p, &described);
    names_find(&s->model->config, &described, &where);
    TRY(gather(s->model, unit, index, &complete));
    tsr_status status =
        add_entry(s, &where, p->dtype, p->ndim, p->ndim == 2 ? p->global_shape[1] : 1, &memory);
    if (status == TSR_OK)
        status = tsr_tensor_slice(memory, 0, where.first_row, where.first_row + p->global_shape[0],
                                  1, &rows);
    if (status == TSR_OK)
        status = tsr_copy(s->model->job->stream, rows, complete);
    tsr_tensor_destroy(&rows);
    tsr_tensor_destroy(&complete);
    return status;
}

static tsr_status keep_unit(saving *s, const gpt_unit *unit)
{
    TRY(tsr_fsdp_begin(unit->sharded, unit->number, TSR_PASS_FORWARD));
    for (int i = 0; i < tsr_fsdp_parameter_count(unit->sharded, unit->number); i++)
        TRY(keep(s, unit, i));
    return tsr_fsdp_end(unit->sharded, unit->number);
}

/* Adds a bias of zero for the weight of an entry, unless it has a bias. */
static tsr_status need_bias(saving *s, int weight)
{
    gpt_place bias = s->places[weight];
    tsr_tensor *memory;
    strcpy(strrchr(bias.name, '.'), ".bias");
    if (find_entry(s, bias.name) >= 0)
        return TSR_OK;
    TRY(add_entry(s, &bias, s->entries[weight].dtype, 1, 1, &memory));
    return tsr_fill(s->model->job->stream, memory, 0);
}

/* Changes the entries to GPT-2's format: matrices are transposed, and all matrices and norms have
 * biases. */
static tsr_status as_hugging_face(saving *s)
{
    int last = s->count;
    for (int i = 0; i < last; i++) {
        tsr_checkpoint_entry *entry = &s->entries[i];
        tsr_tensor *view = NULL;
        if (!s->places[i].is_matrix && entry->ndim != 1)
            continue;
        TRY(need_bias(s, i));
        if (entry->ndim == 1)
            continue;
        TRY(tsr_tensor_transpose(s->owned[i], 0, 1, &view));
        tsr_tensor_destroy(&s->owned[i]);
        s->owned[i] = view;
        memcpy(entry->shape, tsr_tensor_layout(view)->shape, 2 * sizeof *entry->shape);
    }
    return TSR_OK;
}

static tsr_status save_all(saving *s, const char *path)
{
    gpt_model *m = s->model;
    for (int u = 0; u < m->unit_count; u++)
        TRY(keep_unit(s, &m->units[u]));
    if (m->config.style == GPT_STYLE_GPT2)
        TRY(as_hugging_face(s));
    for (int i = 0; i < s->count; i++)
        s->entries[i].tensor = s->owned[i];
    /* The first rank of each stage has all parameters of the stage, so it saves them. */
    if (m->job->data_rank != 0 || m->job->tensor_rank != 0)
        return TSR_OK;
    return tsr_checkpoint_save(path, m->job->stage_comm, m->job->stream, s->count, s->entries,
                               tsr_checkpoint_params(.stages = m->job->stage_comm));
}

static bool write_config(const gpt_model *m, const char *path, const char *given_model, char *error,
                         size_t error_size)
{
    char name[4096], given[4096];
    if (!path_beside(path, "config.json", sizeof name, name)) {
        snprintf(error, error_size, "%s: the path is too long", path);
        return false;
    }
    if (!given_model)
        return gpt_config_write(name, &m->config, m->dtype, error, error_size);
    /* gpt_config_read_model() has read this file, so its path is not too long. */
    snprintf(given, sizeof given, "%s/config.json", given_model);
    return gpt_config_copy(given, name, m->dtype, error, error_size);
}

tsr_status weights_save(gpt_model *model, const char *path, const char *given_model, char *error,
                        size_t error_size)
{
    saving s = {.model = model};
    tsr_status status = TSR_ERR_NO_MEMORY;
    *error = '\0';
    for (int u = 0; u < model->unit_count; u++)
        s.capacity += 2 * tsr_fsdp_parameter_count(model->units[u].sharded, model->units[u].number);
    s.entries = calloc((size_t)s.capacity, sizeof *s.entries);
    s.owned = calloc((size_t)s.capacity, sizeof *s.owned);
    s.places = calloc((size_t)s.capacity, sizeof *s.places);
    if (s.entries && s.owned && s.places)
        status = save_all(&s, path);
    if (status != TSR_OK && *error == '\0')
        snprintf(error, error_size, "%s", tsr_last_error());
    if (status == TSR_OK && model->job->rank == 0 &&
        !write_config(model, path, given_model, error, error_size))
        status = TSR_ERR_IO;
    for (int i = 0; s.owned && i < s.count; i++)
        tsr_tensor_destroy(&s.owned[i]);
    free(s.entries);
    free(s.owned);
    free(s.places);
    return status;
}
