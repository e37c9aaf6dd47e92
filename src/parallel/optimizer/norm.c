/* The norm of all gradients together. Several ranks may have the same element of a gradient. Only
 * the lowest of these ranks adds the square of the element, so that each square counts once. The
 * ranks' sums are then added over two groups: the group in which a parameter is sharded (data), and
 * the group in which its layer is divided (tensor). Parameters that have the same two groups form a
 * class. The sums of all classes are added over the stages of a pipeline. */
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"
#include "parallel/layers/layer.h"
#include "parallel/optimizer/norm.h"

static const char who[] = "optimizer_clip";

void tsr__norm_finish(tsr__norm *n)
{
    for (int i = 0; i < n->class_count; i++)
        tsr__free((void *)n->classes[i].grads);
    for (size_t i = 0; i < n->view_count; i++)
        tsr_tensor_destroy(&n->views[i]);
    tsr__free(n->views);
}

/* Which groups a parameter belongs to -------------------------------------------------------- */

/* Returns the group, or NULL if it has only one rank and so needs no communication. */
static tsr_group *group_if_several(tsr_group *group)
{
    return tsr_group_size(group) > 1 ? group : NULL;
}

static bool is_divided(const tsr_parameter *parameter)
{
    const int dim = parameter->shard_dim;
    return dim >= 0 && parameter->length != parameter->global_shape[dim];
}

/* Finds the group over which a caller's own parameter is divided. A parameter that is not divided
 * has none. */
static tsr_status own_group(const tsr_parameter *parameter, tsr_group *given, tsr_group **out)
{
    *out = NULL;
    if (!is_divided(parameter))
        return TSR_OK;
    TSR__REQUIRE(given,
                 "%s: '%s' is a part of %s; set the group of the ranks that have the other parts",
                 who, parameter->name, TSR__SHAPE(parameter->ndim, parameter->global_shape));
    *out = group_if_several(given);
    return TSR_OK;
}

static tsr_status group_of_item(const tsr__norm *n, const tsr__optimizer_item *item,
                                tsr_group **out)
{
    if (!item->layer)
        return own_group(&item->own, n->own_group ? n->own_group : n->optimizer->group, out);
    *out = group_if_several(item->layer->group);
    return TSR_OK;
}

static tsr_status group_of_unit(const tsr__norm *n, const tsr__fsdp_unit *unit,
                                const tsr__fsdp_param *param, tsr_group **out)
{
    if (!unit->layer)
        return own_group(&param->seen, n->own_group, out);
    *out = group_if_several(unit->layer->group);
    return TSR_OK;
}

/* A function that visit_all calls with each parameter. The parameter belongs to an item of the
 * optimizer, or it is parameter `index` of a model. The pointer to the other of the two, `item` or
 * `model`, is NULL. */
typedef tsr_status visitor(tsr__norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                           tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                           void *user);

static tsr_status visit_model(tsr__norm *n, tsr__optimizer_model *model, visitor *visit, void *user)
{
    for (int u = 0; u < model->fsdp->unit_count; u++) {
        const tsr__fsdp_unit *unit = &model->fsdp->units[u];
        for (int i = unit->first; i < unit->first + unit->count; i++) {
            tsr_group *tensor;
            TSR__TRY(group_of_unit(n, unit, &model->fsdp->params[i], &tensor));
            TSR__TRY(visit(n, tensor, &model->fsdp->params[i].seen, NULL, model, i, user));
        }
    }
    return TSR_OK;
}

static tsr_status visit_all(tsr__norm *n, visitor *visit, void *user)
{
    for (size_t i = 0; i < n->optimizer->item_count; i++) {
        tsr__optimizer_item *item = &n->optimizer->items[i];
        tsr_group *tensor;
        TSR__TRY(group_of_item(n, item, &tensor));
        TSR__TRY(visit(n, tensor, tsr__optimizer_parameter(item), item, NULL, 0, user));
    }
    for (size_t i = 0; i < n->optimizer->model_count; i++)
        TSR__TRY(visit_model(n, &n->optimizer->models[i], visit, user));
    return TSR_OK;
}

static tsr_status another_failed(void)
{
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: another rank could not sum the squares of its gradients; its error says "
                     "why",
                     who);
}

/* The elements whose squares this rank adds ------------------------------------------------------
 *
 * Several ranks may have the same block along shard_dim, for example if there are fewer kv heads
 * than ranks. The lowest of these ranks adds the squares of the block. In this file, the share of a
 * rank is the range of elements whose squares the rank adds. */

/* The offsets and lengths of the blocks of all ranks of a tensor-parallel group. */
typedef struct shares {
    tsr_group *group;
    int64_t *mine, *all; /* `mine` is [parameters, 2], `all` is [ranks, parameters, 2] */
    size_t count, capacity, next;
} shares;

static tsr_status list_share(tsr__norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                             tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                             void *user)
{
    shares *s = user;
    (void)n, (void)item, (void)model, (void)index;
    if (tensor != s->group || parameter->shard_dim < 0)
        return TSR_OK;
    void *mine = s->mine;
    TSR__TRY(tsr__grow(&mine, &s->capacity, 2 * (s->count + 1), sizeof *s->mine));
    s->mine = mine;
    s->mine[2 * s->count] = parameter->offset;
    s->mine[2 * s->count + 1] = parameter->length;
    s->count++;
    return TSR_OK;
}

/* Removes elements other … other_end − 1, which a lower rank has, from the range first … end − 1.
 */
static tsr_status subtract_range(const tsr_parameter *parameter, int64_t other, int64_t other_end,
                                 int64_t *first, int64_t *end)
{
    if (other_end <= *first || other >= *end)
        return TSR_OK;
    TSR__REQUIRE(other <= *first || other_end >= *end,
                 "%s: '%s': a rank has elements %" PRId64 " to %" PRId64 " of dim %d, and another "
                 "has %" PRId64 " to %" PRId64 " inside them",
                 who, parameter->name, *first, *end, parameter->shard_dim, other, other_end);
    if (other <= *first)
        *first = other_end < *end ? other_end : *end;
    else
        *end = other;
    return TSR_OK;
}

static tsr_status set_share(tsr__norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                            tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                            void *user)
{
    shares *s = user;
    (void)n;
    if (tensor != s->group || parameter->shard_dim < 0)
        return TSR_OK;
    int64_t first = parameter->offset, end = parameter->offset + parameter->length;
    for (int rank = 0; rank < tsr_group_rank(tensor); rank++) {
        const int64_t *other = &s->all[2 * ((size_t)rank * s->count + s->next)];
        TSR__TRY(subtract_range(parameter, other[0], other[0] + other[1], &first, &end));
    }
    s->next++;
    if (item) {
        item->own_first = first - parameter->offset;
        item->own_count = end - first;
        return TSR_OK;
    }
    TSR__REQUIRE(end == first || end - first == parameter->length,
                 "%s: '%s' is sharded, but its parts on some ranks overlap and differ", who,
                 parameter->name);
    model->own[index] = end > first || parameter->length == 0;
    return TSR_OK;
}

/* Returns `mine` if `mine` is an error, otherwise an error if another rank of the group has one.
 * All ranks of the group must call this function, so that no rank waits for one that has
 * failed. */
static tsr_status agree_in_group(tsr_group *group, tsr_status mine)
{
    const tsr__error why = tsr__error_take();
    const int32_t failed = mine != TSR_OK;
    int32_t any;
    TSR__TRY(
        tsr_comm_all_reduce(tsr_group_comm(group), &failed, &any, 1, TSR_I32, TSR_OP_MAX, NULL));
    if (mine != TSR_OK) {
        tsr__error_put_back(&why);
        return mine;
    }
    return any ? another_failed() : TSR_OK;
}

/* Sets the shares of the parameters whose tensor-parallel group is `group`. `status` is the
 * result of earlier work, which may have failed on some ranks. */
static tsr_status share_in_group(tsr__norm *n, tsr_group *group, tsr_status status)
{
    shares s = {.group = group};
    const size_t ranks = (size_t)tsr_group_size(group);
    if (status == TSR_OK)
        status = visit_all(n, list_share, &s);
    if (status == TSR_OK && s.count > 0) {
        s.all = tsr__calloc(2 * ranks * s.count, sizeof *s.all);
        status = s.all ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    status = agree_in_group(group, status);
    if (status == TSR_OK && s.count > 0)
        status =
            tsr_comm_all_gather(tsr_group_comm(group), s.mine, s.all, 2 * s.count, TSR_I64, NULL);
    if (status == TSR_OK)
        status = visit_all(n, set_share, &s);
    tsr__free(s.mine);
    tsr__free(s.all);
    return status;
}

/* Sets this rank's share of a parameter to all elements that the rank has. Afterwards
 * share_in_group removes the elements that lower ranks have. */
static tsr_status share_all(tsr__norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                            tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                            void *user)
{
    (void)n, (void)user;
    /* If all ranks of the layer's group have the full parameter, the first rank adds the squares.
     */
    const bool mine = parameter->shard_dim >= 0 || tsr_group_rank(tensor) == 0;
    if (item) {
        item->own_first = 0;
        item->own_count = !mine ? 0 : parameter->shard_dim >= 0 ? parameter->length : INT64_MAX;
    } else {
        model->own[index] = mine;
    }
    return TSR_OK;
}

static tsr_status reserve_shares(tsr_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->model_count; i++) {
        tsr__optimizer_model *model = &optimizer->models[i];
        if (!model->own)
            model->own = tsr__calloc((size_t)model->fsdp->param_count + 1, sizeof *model->own);
        if (!model->own)
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

static tsr_status make_shares(tsr__norm *n)
{
    tsr_optimizer *optimizer = n->optimizer;
    tsr_status status = reserve_shares(optimizer);
    if (status == TSR_OK)
        status = visit_all(n, share_all, NULL);
    for (int i = 0; i < n->class_count; i++) {
        tsr_group *group = n->classes[i].tensor;
        bool seen = !group;
        for (int j = 0; j < i && !seen; j++)
            seen = n->classes[j].tensor == group;
        if (!seen)
            status = share_in_group(n, group, status);
    }
    TSR__TRY(status);
    optimizer->shared_items = optimizer->item_count;
    optimizer->shared_models = optimizer->model_count;
    optimizer->shared_group = n->own_group;
    return TSR_OK;
}

static bool has_shares(const tsr__norm *n)
{
    const tsr_optimizer *optimizer = n->optimizer;
    return optimizer->shared_items == optimizer->item_count &&
           optimizer->shared_models == optimizer->model_count &&
           optimizer->shared_group == n->own_group;
}

/* This rank's sums --------------------------------------------------------------------------- */

static tsr_status find_class(tsr__norm *n, tsr_group *data, tsr_group *tensor,
                             tsr__norm_class **out)
{
    for (int i = 0; i < n->class_count; i++) {
        *out = &n->classes[i];
        if ((*out)->data == data && (*out)->tensor == tensor)
            return TSR_OK;
    }
    TSR__REQUIRE(n->class_count < TSR__NORM_CLASSES,
                 "%s: the parameters belong to more than %d groups", who, (int)TSR__NORM_CLASSES);
    *out = &n->classes[n->class_count++];
    **out = (tsr__norm_class){.data = data, .tensor = tensor};
    return TSR_OK;
}

static tsr_group *data_group(const tsr__optimizer_model *model)
{
    return model ? group_if_several(model->fsdp->group) : NULL;
}

/* Adds the class of a parameter, even if this rank has nothing to add to the class's sum. So all
 * ranks have the same classes in the same order. */
static tsr_status add_class(tsr__norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                            tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                            void *user)
{
    tsr__norm_class *unused;
    (void)parameter, (void)item, (void)index, (void)user;
    return find_class(n, data_group(model), tensor, &unused);
}

static tsr_status add_gradient(tsr__norm_class *to, const tsr_tensor *grad)
{
    void *grads = (void *)to->grads;
    TSR__TRY(tsr__grow(&grads, &to->capacity, to->count + 1, sizeof *to->grads));
    to->grads = grads;
    to->grads[to->count++] = grad;
    return TSR_OK;
}

static tsr_status add_item(tsr__norm *n, const tsr__optimizer_item *item, tsr__norm_class *to)
{
    const tsr_parameter *parameter = tsr__optimizer_parameter(item);
    if (item->own_count == 0 || !tsr__optimizer_has_gradient(item))
        return TSR_OK;
    if (parameter->shard_dim < 0 || item->own_count == parameter->length)
        return add_gradient(to, parameter->grad);
    void *views = n->views;
    TSR__TRY(tsr__grow(&views, &n->view_capacity, n->view_count + 1, sizeof *n->views));
    n->views = views;
    TSR__TRY(tsr_tensor_slice(parameter->grad, parameter->shard_dim, item->own_first,
                              item->own_first + item->own_count, 1, &n->views[n->view_count]));
    return add_gradient(to, n->views[n->view_count++]);
}

static bool counted_elsewhere(const tsr__norm *n, const tsr_parameter *parameter)
{
    for (const char *const *name = n->elsewhere; name && *name; name++)
        if (strcmp(*name, parameter->name) == 0)
            return true;
    return false;
}

static tsr_status add_parameter(tsr__norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                                tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                                void *user)
{
    tsr__norm_class *to;
    (void)user;
    TSR__TRY(find_class(n, data_group(model), tensor, &to));
    if (counted_elsewhere(n, parameter))
        return TSR_OK;
    if (item)
        return add_item(n, item, to);
    const tsr__fsdp_param *param = &model->fsdp->params[index];
    if (!model->own[index] || !param->grad_holds || !param->grad ||
        (param->resident && model->fsdp->rank != 0))
        return TSR_OK;
    return add_gradient(to, param->grad);
}

/* Computes, for each class, the sum of the squares of its gradients multiplied by `scale`, a power
 * of two. */
static tsr_status sum_scaled(tsr__norm *n, tsr_tensor *sums, float scale, float *out)
{
    tsr_stream *stream = n->optimizer->params.stream;
    for (int i = 0; i < n->class_count; i++) {
        tsr_tensor *sum;
        TSR__TRY(tsr_tensor_select(sums, 0, i, &sum));
        tsr_status status =
            tsr_sum_squares(stream, sum, n->classes[i].grads, (int)n->classes[i].count, scale);
        tsr_tensor_destroy(&sum);
        TSR__TRY(status);
    }
    return tsr_tensor_download(stream, sums, out, (uint64_t)n->class_count * sizeof *out);
}

/* Returns whether squares may have become infinite (limit > 1) or 0 (limit < 1) in f32. */
static bool is_lost(double sum, double limit)
{
    return limit > 1 ? sum > limit : sum < limit;
}

/* Computes the sums again with another scale. Uses the new sums only for the classes whose sum so
 * far is beyond `limit`. */
static tsr_status sum_again(tsr__norm *n, tsr_tensor *sums, double limit, float scale)
{
    float again[TSR__NORM_CLASSES];
    bool any = false;
    for (int i = 0; i < n->class_count; i++)
        any = any || (n->classes[i].count > 0 && is_lost(n->classes[i].sum, limit));
    if (!any)
        return TSR_OK;
    TSR__TRY(sum_scaled(n, sums, scale, again));
    for (int i = 0; i < n->class_count; i++)
        if (is_lost(n->classes[i].sum, limit))
            n->classes[i].sum = (double)again[i] / ((double)scale * (double)scale);
    return TSR_OK;
}

tsr_status tsr__norm_sum_local(tsr__norm *n)
{
    tsr_device *device = tsr_stream_device(n->optimizer->params.stream);
    float first[TSR__NORM_CLASSES];
    tsr_tensor *sums;
    TSR__TRY(tsr_tensor_create(device, TSR_F32, 1, (int64_t[]){n->class_count}, &sums));
    tsr_status status = sum_scaled(n, sums, 1, first);
    for (int i = 0; i < n->class_count && status == TSR_OK; i++)
        n->classes[i].sum = (double)first[i];
    if (status == TSR_OK)
        status = sum_again(n, sums, 0x1p120, 0x1p-80f);
    if (status == TSR_OK)
        status = sum_again(n, sums, 0x1p-70, 0x1p80f);
    tsr_tensor_destroy(&sums);
    return status;
}

/* All ranks' sums ---------------------------------------------------------------------------- */

/* What ranks add up for each class: the sum, the number of ranks that have failed, and the number
 * of ranks whose shares (see make_shares) are not up to date. */
typedef struct message {
    double sum, failed, unshared;
} message;

static tsr_status add_sums_of_group(tsr_comm *comm, message *m)
{
    double values[] = {m->sum, m->failed, m->unshared};
    if (!comm)
        return TSR_OK;
    TSR__TRY(tsr_comm_all_reduce(comm, values, values, 3, TSR_F64, TSR_OP_SUM, NULL));
    *m = (message){values[0], values[1], values[2]};
    return TSR_OK;
}

static tsr_status check_groups(const tsr__norm *n)
{
    for (int i = 0; i < n->class_count; i++) {
        if (n->classes[i].data)
            TSR__TRY(tsr__group_check(n->classes[i].data));
        if (n->classes[i].tensor)
            TSR__TRY(tsr__group_check(n->classes[i].tensor));
    }
    return TSR_OK;
}

tsr_status tsr__norm_sum_over_ranks(tsr__norm *n, tsr_status mine, double *out)
{
    const tsr__error why = tsr__error_take();
    message total = {0};
    for (int i = 0; i < n->class_count; i++) {
        message m = {.sum = mine == TSR_OK ? n->classes[i].sum : 0,
                     .failed = mine != TSR_OK,
                     .unshared = !has_shares(n)};
        TSR__TRY(add_sums_of_group(tsr_group_comm(n->classes[i].data), &m));
        TSR__TRY(add_sums_of_group(tsr_group_comm(n->classes[i].tensor), &m));
        total.sum += m.sum;
        total.failed += m.failed;
        total.unshared += m.unshared;
    }
    /* Keep the count for the ranks of this stage. The sum over the stages, below, adds the counts
     * of other stages, which compute their shares by themselves. */
    const double unshared = total.unshared;
    /* If there are no classes, no sum has counted the failure yet. */
    total.failed += mine != TSR_OK;
    TSR__TRY(add_sums_of_group(n->stages, &total));
    if (unshared > 0) /* this makes all ranks compute the shares again in the next call */
        n->optimizer->shared_items = SIZE_MAX;
    if (mine != TSR_OK) {
        tsr__error_put_back(&why);
        return mine;
    }
    if (total.failed > 0)
        return another_failed();
    *out = total.sum;
    return TSR_OK;
}

tsr_status tsr__norm_prepare(tsr__norm *n, tsr_status *mine)
{
    for (size_t i = 0; i < n->optimizer->model_count; i++)
        TSR__TRY(tsr__fsdp_synchronise(n->optimizer->models[i].fsdp, who));
    TSR__TRY(visit_all(n, add_class, NULL));
    TSR__TRY(check_groups(n));
    *mine = has_shares(n) ? TSR_OK : make_shares(n);
    if (*mine == TSR_OK && n->class_count > 0)
        *mine = visit_all(n, add_parameter, NULL);
    return TSR_OK;
}
