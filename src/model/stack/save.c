/* Writes the parameters of a sharded stack as Hugging Face has them. The parameters of a unit are
 * gathered from all ranks. The first rank of a stage keeps them until all are there, because
 * several of ours may be one tensor of the file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/convert/config.h"
#include "model/stack/stack.h"
#include "model/weights/weights.h"
#include "platform/paths.h"

/* A tensor of the file. `memory` is [all_rows, columns], or [matrices · all_rows, columns]. */
typedef struct saved_tensor {
    char name[TSR__WEIGHT_NAME];
    tsr_tensor *memory;
    bool transposed, has_middle;
    int64_t matrices;
} saved_tensor;

typedef struct saving {
    tsr_stack *stack;
    tsr__model_files files; /* only says which kind of files they are */
    tsr__weights target;    /* names and places of weights */
    bool writes;            /* this rank is the first of its stage */
    saved_tensor *tensors;
    size_t count, capacity;
    /* The unit that is in use; sharded is NULL if there is none. */
    tsr__stack_parameter open;
} saving;

/* Tensors of the file ------------------------------------------------------------------------ */

static saved_tensor *find(saving *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

/* Gives the tensor called `name`. Creates it, with the shape that `place` says, if it does not
 * exist yet. */
static tsr_status need_tensor(saving *s, const char *name, const tsr__weight *place, int ndim,
                              saved_tensor **out)
{
    const int64_t matrices = place->matrices > 0 ? place->matrices : 1;
    const bool turned = place->flat && place->transposed; /* into rows of the tensor */
    const int64_t shape[2] = {matrices * (turned ? place->all_columns : place->all_rows),
                              turned ? place->all_rows : place->columns};
    void *tensors = s->tensors;
    *out = find(s, name);
    if (*out)
        return TSR_OK;
    TSR__TRY(tsr__grow(&tensors, &s->capacity, s->count + 1, sizeof *s->tensors));
    s->tensors = tensors;
    saved_tensor *added = &s->tensors[s->count];
    *added = (saved_tensor){
        .transposed = !turned && (place->transposed ||
                                  (place->matrices > 0 && ndim == 2 && s->stack->family->hf_mxfp4)),
        .has_middle = place->has_middle,
        .matrices = place->flat ? 0 : place->matrices};
    snprintf(added->name, sizeof added->name, "%s", name);
    TSR__TRY(tsr_tensor_create(s->stack->device, s->stack->dtype, ndim, shape, &added->memory));
    s->count++;
    *out = added;
    return TSR_OK;
}

/* Gathering ---------------------------------------------------------------------------------- */

static tsr_status close_unit(saving *s)
{
    if (!s->open.sharded)
        return TSR_OK;
    s->open.sharded = NULL;
    return tsr__stack_end(s->stack, s->open.owner, s->open.unit, TSR_OK);
}

static tsr_status open_unit(saving *s, const tsr__stack_parameter *p)
{
    if (s->open.sharded == p->sharded && s->open.unit == p->unit)
        return TSR_OK;
    TSR__TRY(close_unit(s));
    TSR__TRY(tsr__stack_begin(s->stack, p->owner, p->unit, TSR_PASS_FORWARD));
    s->open = *p;
    return TSR_OK;
}

/* Gathers a parameter from all ranks. Every rank has all learned positions. */
static tsr_status gather(const tsr_stack *stack, const tsr__stack_parameter *p, tsr_tensor **out)
{
    if (p->owner)
        return tsr_layer_gather_parameter(p->owner, p->index, out);
    const tsr_parameter *positions = tsr__stack_positions(stack);
    return tsr_tensor_slice(positions->tensor, 0, 0, positions->global_shape[0], 1, out);
}

/* Copies rows of a parameter to a tensor of the file, where they are in another order. */
static tsr_status keep_runs(saving *s, const tsr__weight *place, tsr_tensor *memory,
                            const tsr_tensor *complete)
{
    const int64_t run = place->row_order.run;
    tsr_status status = TSR_OK;
    for (int64_t i = 0; status == TSR_OK && i < place->rows; i += run) {
        const int64_t at = place->first_row + tsr__order_in_file(&place->row_order, i);
        tsr_tensor *from = NULL, *to = NULL;
        status = tsr_tensor_slice(complete, 0, i, i + run, 1, &from);
        if (status == TSR_OK)
            status = tsr_tensor_slice(memory, 0, at, at + run, 1, &to);
        if (status == TSR_OK)
            status = tsr_copy(s->stack->stream, to, from);
        tsr_tensor_destroy(&from);
        tsr_tensor_destroy(&to);
    }
    return status;
}

/* Keeps the matrix of one expert, or of a parameter that is not of experts. `ndim` is its own. */
static tsr_status keep(saving *s, const tsr__stack_parameter *p, int64_t expert, int ndim,
                       const tsr_tensor *complete)
{
    char name[TSR__WEIGHT_NAME];
    tsr__weight place;
    saved_tensor *to;
    tsr_tensor *rows = NULL;
    TSR__TRY(tsr__weight_place(&s->target, p->layer, p->ours, expert, &place, name));
    TSR__TRY(need_tensor(s, name, &place, ndim, &to));
    if (place.row_order.run > 0)
        return keep_runs(s, &place, to->memory, complete);
    if (place.flat && place.transposed) {
        tsr_tensor *turned = NULL;
        TSR__TRY(tsr_tensor_slice(to->memory, 0, place.matrix * place.all_columns,
                                  place.matrix * place.all_columns + place.columns, 1, &rows));
        tsr_status copied = tsr_tensor_transpose(complete, 0, 1, &turned);
        if (copied == TSR_OK)
            copied = tsr_copy(s->stack->stream, rows, turned);
        tsr_tensor_destroy(&turned);
        tsr_tensor_destroy(&rows);
        return copied;
    }
    const int64_t first = place.matrix * place.all_rows + place.first_row;
    TSR__TRY(tsr_tensor_slice(to->memory, 0, first, first + (place.rows - 1) * place.row_step + 1,
                              place.row_step, &rows));
    const tsr_status status = place.less_one ? tsr_scale(s->stack->stream, rows, complete, 1, -1)
                                             : tsr_copy(s->stack->stream, rows, complete);
    tsr_tensor_destroy(&rows);
    return status;
}

static tsr_status keep_experts(saving *s, const tsr__stack_parameter *p, const tsr_tensor *complete)
{
    for (int64_t e = 0; e < p->parameter->global_shape[0]; e++) {
        tsr_tensor *own = NULL;
        TSR__TRY(tsr_tensor_select(complete, 0, e, &own));
        const tsr_status status = keep(s, p, e, p->parameter->ndim - 1, own);
        tsr_tensor_destroy(&own);
        TSR__TRY(status);
    }
    return TSR_OK;
}

static tsr_status save_one(void *user, const tsr__stack_parameter *p)
{
    saving *s = user;
    tsr_tensor *complete = NULL;
    TSR__TRY(open_unit(s, p));
    TSR__TRY(gather(s->stack, p, &complete));
    tsr_status status = TSR_OK;
    if (s->writes)
        status = strstr(p->ours, ".experts.") || p->parameter->ndim == 3
                     ? keep_experts(s, p, complete)
                     : keep(s, p, 0, p->parameter->ndim, complete);
    tsr_tensor_destroy(&complete);
    return status;
}

/* Adds biases of 0 for those of a layer that the family's models have, but this one lacks. `full`
 * is the configuration with all biases. */
static tsr_status add_zeros(saving *s, const tsr_model_config *full, int layer)
{
    char name[TSR__WEIGHT_NAME];
    tsr__parameter p;
    tsr__weight place;
    for (int i = 0; tsr__weights_parameter(full, layer, i, &p); i++) {
        saved_tensor *to;
        if (p.ndim != 1 || (layer < 0 && !s->stack->is_last))
            continue;
        TSR__TRY(tsr__weight_place(&s->target, layer, p.ours, 0, &place, name));
        if (find(s, name))
            continue;
        TSR__TRY(need_tensor(s, name, &place, 1, &to));
        TSR__TRY(tsr_fill(s->stack->stream, to->memory, 0));
    }
    return TSR_OK;
}

static tsr_status add_missing_biases(saving *s)
{
    const tsr_stack *stack = s->stack;
    tsr__config *full = NULL;
    if (!s->writes || !stack->family->keys->bias || stack->config->norm_bias)
        return TSR_OK;
    TSR__TRY(tsr__config_copy(stack->config, &full));
    full->public.norm_bias = stack->family->norm_bias;
    for (int i = 0; i < full->public.kind_count; i++) {
        full->kinds[i].qkv_bias = stack->family->layer.qkv_bias;
        full->kinds[i].output_bias = stack->family->layer.output_bias;
        full->kinds[i].mlp_bias = stack->family->layer.mlp_bias;
    }
    tsr_status status = add_zeros(s, &full->public, -1);
    for (int i = 0; status == TSR_OK && i < stack->layer_count; i++)
        status = add_zeros(s, &full->public, stack->first_layer + i);
    tsr__free(full);
    return status;
}

/* Writing ------------------------------------------------------------------------------------ */

static tsr_status describe(saved_tensor *t, tsr_checkpoint_entry *out)
{
    if (t->matrices > 0) {
        const tsr_layout *flat = tsr_tensor_layout(t->memory);
        const int64_t shape[3] = {t->matrices, flat->shape[0] / t->matrices,
                                  flat->ndim > 1 ? flat->shape[1] : 0};
        tsr_tensor *view = NULL;
        TSR__TRY(tsr_tensor_reshape(t->memory, flat->ndim + 1, shape, &view));
        tsr_tensor_destroy(&t->memory);
        t->memory = view;
        t->matrices = 0;
    }
    if (t->has_middle) {
        const tsr_layout *flat = tsr_tensor_layout(t->memory);
        const int64_t shape[3] = {flat->shape[0], 1, flat->shape[1]};
        tsr_tensor *view = NULL;
        TSR__TRY(tsr_tensor_reshape(t->memory, 3, shape, &view));
        tsr_tensor_destroy(&t->memory);
        t->memory = view;
        t->has_middle = false;
    }
    if (t->transposed) {
        const int last = tsr_tensor_layout(t->memory)->ndim - 1;
        tsr_tensor *view = NULL;
        TSR__TRY(tsr_tensor_transpose(t->memory, last - 1, last, &view));
        tsr_tensor_destroy(&t->memory);
        t->memory = view;
        t->transposed = false;
    }
    const tsr_layout *layout = tsr_tensor_layout(t->memory);
    *out = (tsr_checkpoint_entry){.struct_size = sizeof(tsr_checkpoint_entry),
                                  .name = t->name,
                                  .dtype = layout->dtype,
                                  .ndim = layout->ndim,
                                  .shard_dim = -1,
                                  .count = 1,
                                  .tensor = t->memory};
    for (int d = 0; d < layout->ndim; d++) {
        out->shape[d] = layout->shape[d];
        out->count *= (uint64_t)layout->shape[d];
    }
    return TSR_OK;
}

static tsr_status write_tensors(saving *s, const char *path, tsr_comm *stages)
{
    if (!s->writes)
        return TSR_OK;
    tsr_checkpoint_entry *entries = tsr__calloc(s->count, sizeof *entries);
    tsr_status status = entries ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (size_t i = 0; status == TSR_OK && i < s->count; i++)
        status = describe(&s->tensors[i], &entries[i]);
    if (status == TSR_OK)
        status = tsr_checkpoint_save(path, stages, s->stack->stream, (int)s->count, entries,
                                     tsr_checkpoint_params(.stages = stages));
    tsr__free(entries);
    return status;
}

static void print_config(const void *user, tsr__json_writer *w)
{
    const tsr_stack *stack = user;
    tsr__config_print(stack->config, stack->dtype, false, w);
}

/* Writes config.json into the folder of `path`. */
static tsr_status write_config(const tsr_stack *stack, const char *path)
{
    const char *slash = tsr__path_last_separator(path);
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0,
                 size = folder + sizeof "config.json";
    size_t length = 0;
    char *text = NULL, *name = tsr__calloc(size, 1);
    tsr_status status =
        name ? tsr__json_print_document(print_config, stack, 0, &text, &length) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        snprintf(name, size, "%.*sconfig.json", (int)folder, path);
        FILE *file = fopen(name, "wb");
        const bool written = file && fwrite(text, 1, length, file) == length;
        const int error = errno;
        if ((file && fclose(file) != 0) || !written)
            status = tsr__fail(TSR_ERR_IO, "stack: %s cannot be written: %s", name,
                               strerror(written ? errno : error));
    }
    tsr__free(text);
    tsr__free(name);
    return status;
}

static tsr_status save_all(saving *s, const char *path, tsr_comm *stages)
{
    TSR__TRY(tsr__stack_each(s->stack, save_one, s));
    TSR__TRY(close_unit(s));
    TSR__TRY(add_missing_biases(s));
    TSR__TRY(write_tensors(s, path, stages));
    return s->writes && s->stack->is_first ? write_config(s->stack, path) : TSR_OK;
}

tsr_status tsr_stack_save(tsr_stack *stack, const char *path, tsr_comm *stages)
{
    TSR__REQUIRE(stack && path, "stack: %s is NULL", stack ? "path" : "stack");
    TSR__REQUIRE(stack->sharded, "stack: the parameters are not sharded");
    saving s = {.stack = stack,
                .writes = tsr_group_rank(stack->group) == 0 && tsr_group_rank(stack->data) == 0};
    s.target = (tsr__weights){.files = &s.files,
                              .config = stack->config,
                              .family = stack->family,
                              .prefix = stack->family->hf_prefix,
                              .transposed = stack->family->hf_transposed,
                              .experts = tsr__experts_of_family(stack->family, false)};
    const tsr_status status = save_all(&s, path, stages);
    if (status != TSR_OK) { /* no unit stays in use */
        const tsr__error error = tsr__error_take();
        (void)close_unit(&s);
        tsr__error_put_back(&error);
    }
    for (size_t i = 0; i < s.count; i++)
        tsr_tensor_destroy(&s.tensors[i].memory);
    tsr__free(s.tensors);
    return status;
}
