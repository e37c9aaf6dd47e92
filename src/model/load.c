/* Reads the weights of a model's layers: of each parameter the part that this rank has. */
#include <string.h>

#include "base/error.h"
#include "model/config/config.h"
#include "model/model.h"
#include "model/weights/reader.h"
#include "model/weights/weights.h"
#include "tensor/dtype.h"

/* A pass over all parameters: the first one counts the bytes, the second one reads them. */
typedef struct loading {
    tsr_model *model;
    const tsr__weights *weights;
    tsr__weight_reader reader;
    bool one_layer; /* visit only parameters of `layer`; NULL: learned positions */
    const tsr_layer *layer;
    bool counting;
    uint64_t kept_bytes[TSR__MAX_DTYPE + 1]; /* by dtype */
} loading;

static void count_kept(loading *l, tsr_dtype dtype, uint64_t elements, bool host)
{
    tsr_model_stats *stats = &l->model->stats;
    const uint64_t bytes = tsr__dtype_bytes(dtype, elements);
    *(host ? &stats->host_bytes : &stats->weight_bytes) += bytes;
    l->kept_bytes[dtype] += bytes;
    if (l->kept_bytes[dtype] > l->kept_bytes[stats->dtype])
        stats->dtype = dtype;
}

/* Counts or reads a part of one matrix. `host`: it is kept in the host's memory. */
static tsr_status load_part(loading *l, const tsr__weight *weight, const tsr__weight_part *part,
                            bool host, tsr_tensor *tensor)
{
    if (l->counting) {
        l->reader.total_bytes += tsr__weight_part_bytes(weight, part);
        count_kept(l, tsr_tensor_layout(tensor)->dtype, (uint64_t)(part->rows * part->columns),
                   host);
        return TSR_OK;
    }
    return tsr__weight_read(&l->reader, weight, part, tensor);
}

/* The same for each of this rank's experts. */
static tsr_status load_experts(loading *l, const tsr__stack_parameter *p,
                               const tsr__weight_part *part)
{
    const bool host = p->parameter->ndim == 3 && strstr(p->ours, ".experts.") &&
                      tsr__config_host_experts(l->model->config, p->layer, l->model->host_experts);
    for (int64_t e = 0; e < part->experts; e++) {
        tsr__weight weight;
        tsr_tensor *own = NULL;
        TSR__TRY(tsr__weight_find_expert(l->weights, p->layer, p->ours, part->first_expert + e,
                                         &weight));
        TSR__TRY(tsr_tensor_select(p->parameter->tensor, 0, e, &own));
        const tsr_status status = load_part(l, &weight, part, host, own);
        tsr_tensor_destroy(&own);
        TSR__TRY(status);
    }
    return TSR_OK;
}

static tsr_status load_one(void *user, const tsr__stack_parameter *p)
{
    loading *l = user;
    tsr_model *m = l->model;
    tsr__weight weight;
    tsr__weight_part part;
    if (l->one_layer && p->owner != l->layer)
        return TSR_OK;
    if (p->owner) {
        TSR__TRY(tsr__weight_of(l->weights, p->layer, p->ours, p->parameter, &weight, &part));
        if (m->kept.tiles)
            tsr__weight_keep_tiles(&weight, &part);
        TSR__TRY(part.of_experts ? load_experts(l, p, &part)
                                 : load_part(l, &weight, &part, false, p->parameter->tensor));
    } else { /* learned positions, which every rank has in full */
        TSR__TRY(tsr__weight_find(l->weights, p->layer, p->ours, &weight));
        part = (tsr__weight_part){.rows = weight.rows, .columns = weight.columns};
        TSR__TRY(load_part(l, &weight, &part, false, m->stack->positions));
    }
    /* Tables are learned positions, layers' inputs, and an embedding that is not also the head of
     * this stage. */
    const bool is_head = p->owner == m->stack->embedding && m->config->tied && m->is_last;
    if (l->counting && !is_head &&
        (!p->owner || p->owner == m->stack->embedding || p->owner == m->stack->input_table))
        m->stats.table_bytes += tsr__dtype_bytes(
            tsr_tensor_layout(p->owner ? p->parameter->tensor : m->stack->positions)->dtype,
            tsr__weight_part_elements(&part));
    return TSR_OK;
}

tsr_status tsr__model_load(tsr_model *model, const tsr__weights *weights,
                           const tsr_model_params *params)
{
    loading l = {.model = model, .weights = weights, .counting = true};
    tsr__weight_reader_init(weights->files, model->stream,
                            tsr_comm_local_size(tsr_group_comm(model->group)), &l.reader);
    tsr_status status = tsr__stack_each(model->stack, load_one, &l);
    l.counting = false;
    l.reader.progress = params->progress;
    l.reader.user = params->user;
    if (status == TSR_OK)
        status = tsr__stack_each(model->stack, load_one, &l);
    if (status == TSR_OK)
        status = tsr__weight_read_rest(&l.reader);
    if (status == TSR_OK)
        status = tsr_stream_wait(model->stream);
    model->stats.read_bytes = l.reader.source.read_bytes;
    tsr__weight_reader_finish(&l.reader);
    return status;
}

/* Layer by layer ------------------------------------------------------------------------------- */

static tsr_status open_layer(void *user, tsr_layer *layer, bool with_values)
{
    loading *l = user;
    tsr_status status = tsr__model_allocate_layer(l->model, l->weights, layer);
    l->layer = layer;
    if (status == TSR_OK && with_values)
        status = tsr__stack_each(l->model->stack, load_one, l);
    if (status == TSR_OK && with_values)
        status = tsr__weight_read_rest(&l->reader);
    return status;
}

static void close_layer(void *user, tsr_layer *layer)
{
    (void)user;
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++)
        (void)!tsr_layer_set_parameter(layer, i, NULL, NULL, false); /* cannot fail */
}

/* Counts the bytes of a layer. */
static tsr_status count_layer(loading *l, tsr_layer *layer)
{
    if (!layer)
        return TSR_OK;
    const tsr_status status = open_layer(l, layer, true);
    close_layer(l, layer);
    return status;
}

static tsr_status count_layers(loading *l)
{
    const tsr_stack *s = l->model->stack;
    l->counting = true;
    TSR__TRY(count_layer(l, s->embedding));
    for (int i = 0; i < s->layer_count; i++)
        TSR__TRY(count_layer(l, s->blocks[i]));
    TSR__TRY(count_layer(l, s->norm));
    TSR__TRY(l->model->config->tied ? TSR_OK : count_layer(l, s->head));
    l->counting = false;
    return TSR_OK;
}

/* Every rank has all learned positions until they are divided, too. */
static tsr_status load_positions(loading *l)
{
    tsr_model *m = l->model;
    if (!m->is_first || !m->config->learned_positions)
        return TSR_OK;
    l->layer = NULL;
    TSR__TRY(tsr__model_allocate_positions(m));
    TSR__TRY(tsr__stack_each(m->stack, load_one, l));
    return tsr__weight_read_rest(&l->reader);
}

tsr_status tsr__model_load_sharded(tsr_model *model, const tsr__weights *weights,
                                   const tsr_model_params *params)
{
    loading l = {.model = model, .weights = weights, .one_layer = true};
    const tsr__fsdp_source source = {open_layer, close_layer, &l};
    tsr__stack_freeze(model->stack);
    tsr__weight_reader_init(weights->files, model->stream,
                            tsr_comm_local_size(tsr_group_comm(model->group)), &l.reader);
    tsr_status status = count_layers(&l);
    l.reader.progress = params->progress;
    l.reader.user = params->user;
    if (status == TSR_OK)
        status = load_positions(&l);
    if (status == TSR_OK)
        status = tsr__stack_shard_from(model->stack, tsr_fsdp_params(.group = params->sharded_over),
                                       &source);
    model->stats.read_bytes = l.reader.source.read_bytes;
    tsr__weight_reader_finish(&l.reader);
    return status;
}
