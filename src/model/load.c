/* Reads the weights of a model's layers: of each parameter the part that this rank has. */
#include "base/error.h"
#include "model/model.h"
#include "model/weights/reader.h"
#include "model/weights/weights.h"
#include "tensor/dtype.h"

/* A pass over all parameters: the first one counts the bytes, the second one reads them. */
typedef struct loading {
    tsr_model *model;
    const tsr__weights *weights;
    tsr__weight_reader reader;
    bool counting;
    uint64_t kept_bytes[TSR_NVFP4 + 1]; /* by dtype */
} loading;

static void count_kept(loading *l, tsr_dtype dtype, uint64_t elements)
{
    tsr_model_stats *stats = &l->model->stats;
    const uint64_t bytes = tsr__dtype_bytes(dtype, elements);
    stats->weight_bytes += bytes;
    l->kept_bytes[dtype] += bytes;
    if (l->kept_bytes[dtype] > l->kept_bytes[stats->dtype])
        stats->dtype = dtype;
}

static tsr_status load_part(loading *l, const tsr__weight *weight, const tsr__weight_part *part,
                            tsr_tensor *tensor)
{
    if (l->counting) {
        l->reader.total_bytes += tsr__weight_part_bytes(weight, part);
        count_kept(l, tsr_tensor_layout(tensor)->dtype, (uint64_t)(part->rows * part->columns));
        return TSR_OK;
    }
    return tsr__weight_read(&l->reader, weight, part, tensor);
}

static tsr_status load_parameter(loading *l, int layer, const tsr_parameter *p)
{
    tsr__weight weight;
    tsr__weight_part part;
    TSR__TRY(tsr__weight_of(l->weights, layer, p, &weight, &part));
    return load_part(l, &weight, &part, p->tensor);
}

static tsr_status load_layer(loading *l, int layer, const tsr_layer *which)
{
    for (int i = 0; i < tsr_layer_parameter_count(which); i++)
        TSR__TRY(load_parameter(l, layer, tsr_layer_parameter(which, i)));
    return TSR_OK;
}

static tsr_status load_positions(loading *l)
{
    tsr__weight weight;
    if (!l->model->positions)
        return TSR_OK;
    TSR__TRY(tsr__weight_find(l->weights, -1, "positions.weight", &weight));
    const tsr__weight_part part = {.rows = weight.rows, .columns = weight.columns};
    return load_part(l, &weight, &part, l->model->positions);
}

static tsr_status load_all(loading *l)
{
    const tsr_model *m = l->model;
    if (m->embedding)
        TSR__TRY(load_layer(l, -1, m->embedding));
    const uint64_t head_bytes = m->config->tied && m->is_last ? m->stats.weight_bytes : 0;
    TSR__TRY(load_positions(l));
    if (l->counting)
        l->model->stats.table_bytes = m->stats.weight_bytes - head_bytes;
    for (int i = m->first_layer; i < m->first_layer + m->layer_count; i++)
        TSR__TRY(load_layer(l, i, m->blocks[i]));
    if (!m->is_last)
        return TSR_OK;
    TSR__TRY(load_layer(l, -1, m->norm));
    return m->config->tied ? TSR_OK : load_layer(l, -1, m->head);
}

tsr_status tsr__model_load(tsr_model *model, const tsr__weights *weights,
                           const tsr_model_params *params)
{
    loading l = {.model = model, .weights = weights, .counting = true};
    tsr__weight_reader_init(weights->files, model->stream,
                            tsr_comm_local_size(tsr_group_comm(model->group)), &l.reader);
    tsr_status status = load_all(&l);
    l.counting = false;
    l.reader.progress = params->progress;
    l.reader.user = params->user;
    if (status == TSR_OK)
        status = load_all(&l);
    if (status == TSR_OK)
        status = tsr__weight_read_rest(&l.reader);
    if (status == TSR_OK)
        status = tsr_stream_wait(model->stream);
    model->stats.read_bytes = l.reader.source.read_bytes;
    tsr__weight_reader_finish(&l.reader);
    return status;
}
