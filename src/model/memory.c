/* The memory of a model's weights: which matrices share a tensor. */
#include <string.h>

#include "base/error.h"
#include "model/config/config.h"
#include "model/model.h"
#include "model/weights/weights.h"

/* Allocating --------------------------------------------------------------------------------- */

#define MAX_JOINT 6

/* Parameters of a layer that follow each other in one tensor, so that one product can read them:
 * queries, keys and values, or gate and up, or the projections of a delta net. */
typedef struct joint {
    char name[TSR__STACK_NAME]; /* of the first, in weights.h */
    int count;
    int index[MAX_JOINT];
    int64_t rows[MAX_JOINT];
    tsr_dtype dtype;
    int ndim;
    int64_t columns;
    int64_t experts; /* of its only parameter; 0: it is not of experts */
} joint;

static tsr_status allocate_joint(const tsr_model *m, tsr_layer *layer, const joint *j)
{
    tsr_tensor *all = NULL, *part = NULL;
    int64_t shape[2] = {0, j->columns}, at = 0;
    for (int i = 0; i < j->count; i++)
        shape[0] += j->rows[i];
    TSR__TRY(tsr_tensor_create(m->device, j->dtype, j->ndim, shape, &all));
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK && i < j->count; i++) {
        status = tsr_tensor_slice(all, 0, at, at + j->rows[i], 1, &part);
        if (status == TSR_OK)
            status = tsr_layer_set_parameter(layer, j->index[i], part, NULL, false);
        tsr_tensor_destroy(&part);
        at += j->rows[i];
    }
    tsr_tensor_destroy(&all);
    return status;
}

/* Returns whether two names have the same first and last component, such as "attention.q.weight"
 * and "attention.v.weight". */
static bool beside(const char *a, const char *b)
{
    const size_t before = strcspn(a, ".");
    return before == strcspn(b, ".") && strncmp(a, b, before) == 0 &&
           strcmp(strrchr(a, '.'), strrchr(b, '.')) == 0;
}

/* Sets *out to a joint that consists of one parameter. */
static tsr_status describe(const tsr_model *m, const tsr__weights *weights, int layer,
                           const char *ours, const tsr_layer *which, int index, joint *out)
{
    char name[TSR__STACK_NAME];
    const tsr_parameter *p = tsr_layer_parameter(which, index);
    tsr__weight weight;
    tsr__weight_part part;
    tsr__stack_own_name(m->stack, layer, ours, p, name);
    TSR__TRY(tsr__weight_of(weights, layer, name, p, &weight, &part));
    if (m->kept.tiles)
        tsr__weight_keep_tiles(&weight, &part);
    *out = (joint){
        .count = 1,
        .index = {index},
        .rows = {part.rows},
        .dtype = tsr__weights_is_matrix(layer, name) ? tsr__kept_part(&m->kept, &weight, &part)
                                                     : p->dtype,
        .ndim = p->ndim,
        .columns = part.columns,
        .experts = part.of_experts ? part.experts : 0,
    };
    memcpy(out->name, name, sizeof name);
    return TSR_OK;
}

/* Adds a parameter to `j`, if one product can read both, and returns whether it has done so. Only
 * column-parallel layers, whose matrices are divided by rows or are complete, compute several of
 * them together. */
static bool add_to(joint *j, const tsr_layer *which, const joint *one)
{
    const tsr_parameter *first = tsr_layer_parameter(which, j->index[0]),
                        *p = tsr_layer_parameter(which, one->index[0]);
    if (j->count == 0 || j->count == MAX_JOINT || !beside(j->name, one->name) ||
        first->shard_dim == 1 || p->shard_dim == 1 || strstr(j->name, "router") ||
        strstr(one->name, "router") || one->ndim != j->ndim || one->dtype != j->dtype ||
        one->columns != j->columns)
        return false;
    j->index[j->count] = one->index[0];
    j->rows[j->count++] = one->rows[0];
    return true;
}

/* Allocates the matrices, or the biases, of all experts of this rank, or of its heads. */
static tsr_status allocate_experts(const tsr_model *m, int number, tsr_layer *layer,
                                   const joint *one)
{
    tsr_tensor *all = NULL;
    const int64_t shape[3] = {one->experts, one->rows[0], one->columns};
    const bool host = one->ndim == 3 && strstr(one->name, ".experts.") &&
                      tsr__config_host_experts(m->config, number, m->host_experts);
    TSR__TRY(host ? tsr_tensor_create_host(m->device, one->dtype, one->ndim, shape, &all)
                  : tsr_tensor_create(m->device, one->dtype, one->ndim, shape, &all));
    const tsr_status status = tsr_layer_set_parameter(layer, one->index[0], all, NULL, false);
    tsr_tensor_destroy(&all);
    return status;
}

/* Allocates the parameters of a layer; those that are computed together are in one tensor. Weights
 * and biases alternate in the list of parameters, so the tensors of both kinds are collected at the
 * same time. */
static tsr_status allocate_layer(const tsr_model *m, const tsr__weights *weights, int layer,
                                 const char *ours, tsr_layer *which)
{
    joint open[2] = {{.count = 0}, {.count = 0}}, one;
    for (int i = 0; i < tsr_layer_parameter_count(which); i++) {
        TSR__TRY(describe(m, weights, layer, ours, which, i, &one));
        if (strstr(one.name, ".experts.") || one.ndim == 3) {
            TSR__TRY(allocate_experts(m, layer, which, &one));
            continue;
        }
        joint *j = &open[one.ndim - 1];
        if (add_to(j, which, &one))
            continue;
        if (j->count > 0)
            TSR__TRY(allocate_joint(m, which, j));
        *j = one;
    }
    for (int kind = 0; kind < 2; kind++)
        if (open[kind].count > 0)
            TSR__TRY(allocate_joint(m, which, &open[kind]));
    return TSR_OK;
}

static tsr_status allocate_next(const tsr_model *m, const tsr__weights *weights)
{
    const tsr__stack_next *n = &m->stack->next;
    const int number = m->config->layers;
    TSR__TRY(allocate_layer(m, weights, number, "next.embedding_norm", n->embedding_norm));
    TSR__TRY(allocate_layer(m, weights, number, "next.hidden_norm", n->hidden_norm));
    TSR__TRY(allocate_layer(m, weights, number, "next.join", n->join));
    TSR__TRY(allocate_layer(m, weights, number, NULL, n->block));
    return allocate_layer(m, weights, number, "next.norm", n->norm);
}

tsr_status tsr__model_allocate_layer(const tsr_model *m, const tsr__weights *weights,
                                     tsr_layer *layer)
{
    const tsr_stack *s = m->stack;
    const struct {
        tsr_layer *layer;
        const char *ours;
    } outside[] = {{s->embedding, "embedding"},
                   {s->norm, "norm"},
                   {s->head, "head"},
                   {s->input_table, "input_table"},
                   {s->input_projection, "input_projection"},
                   {s->input_norm, "input_norm"}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (layer == outside[i].layer)
            return allocate_layer(m, weights, -1, outside[i].ours, layer);
    int block = 0;
    while (s->blocks[block] != layer)
        block++;
    return allocate_layer(m, weights, m->first_layer + block, NULL, layer);
}

tsr_status tsr__model_allocate_positions(tsr_model *m)
{
    return tsr_tensor_create(m->device, m->kept.others, 2,
                             (int64_t[]){m->config->context, m->config->width},
                             &m->stack->positions);
}

tsr_status tsr__model_allocate(tsr_model *m, const tsr__weights *weights)
{
    tsr_stack *s = m->stack;
    if (s->embedding)
        TSR__TRY(allocate_layer(m, weights, -1, "embedding", s->embedding));
    if (m->is_first && m->config->learned_positions)
        TSR__TRY(tsr__model_allocate_positions(m));
    if (s->input_table) {
        TSR__TRY(allocate_layer(m, weights, -1, "input_table", s->input_table));
        TSR__TRY(allocate_layer(m, weights, -1, "input_projection", s->input_projection));
        TSR__TRY(allocate_layer(m, weights, -1, "input_norm", s->input_norm));
    }
    for (int i = 0; i < m->layer_count; i++)
        TSR__TRY(allocate_layer(m, weights, m->first_layer + i, NULL, s->blocks[i]));
    if (s->next.block)
        TSR__TRY(allocate_next(m, weights));
    if (!m->is_last)
        return TSR_OK;
    TSR__TRY(allocate_layer(m, weights, -1, "norm", s->norm));
    if (!m->config->tied)
        return allocate_layer(m, weights, -1, "head", s->head);
    /* A tied head uses the memory of the embedding. */
    return tsr_layer_set_parameter(s->head, 0, tsr_layer_parameter(s->embedding, 0)->tensor, NULL,
                                   false);
}
