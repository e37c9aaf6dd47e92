/* The norm of all gradients together. Several ranks may have the same element of a gradient. Only
 * the lowest of them adds the square of the element, so that it counts once. The ranks' sums are
 * then added over two groups: the group in which a parameter is sharded (data), and the group in
 * which its layer is divided (tensor). Parameters for which both groups are the same form a
 * class. The sums of all classes are added over the stages of a pipeline. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"
#include "parallel/layers/layer.h"
#include "parallel/optimizer/optimizer.h"

static const char who[] = "optimizer_clip";

enum {
    MAX_CLASSES = 32,
};

typedef struct class
{
    tsr_group *data, *tensor; /* NULL: a group of one rank */
    const tsr_tensor **grads; /* the gradients whose squares this rank sums */
    size_t count, capacity;
    double sum;
} class;

typedef struct norm {
    tsr_optimizer *optimizer;
    tsr_group *own_group;         /* the group over which the caller's own parameters are divided */
    tsr_comm *stages;             /* NULL: none */
    const char *const *elsewhere; /* names of parameters that another stage counts; NULL: none */
    int class_count;
    class classes[MAX_CLASSES];
    tsr_tensor **views; /* views of parts of gradients */
    size_t view_count, view_capacity;
} norm;

static void norm_finish(norm *n)
{
    for (int i = 0; i < n->class_count; i++)
        tsr__free((void *)n->classes[i].grads);
    for (size_t i = 0; i < n->view_count; i++)
        tsr_tensor_destroy(&n->views[i]);
    tsr__free(n->views);
}

/* Which groups a parameter belongs to -----------------------------------------------------------
 */

/* Returns the group, or NULL if it has only one rank and so needs no communication. */
static tsr_group *several(tsr_group *group)
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
    *out = several(given);
    return TSR_OK;
}

static tsr_status group_of_item(const norm *n, const tsr__optimizer_item *item, tsr_group **out)
{
    if (!item->layer)
        return own_group(&item->own, n->own_group ? n->own_group : n->optimizer->group, out);
    *out = several(item->layer->group);
    return TSR_OK;
}

static tsr_status group_of_unit(const norm *n, const tsr__fsdp_unit *unit,
                                const tsr__fsdp_param *param, tsr_group **out)
{
    if (!unit->layer)
        return own_group(&param->seen, n->own_group, out);
    *out = several(unit->layer->group);
    return TSR_OK;
}

/* A function that visit_all calls with each parameter. The parameter belongs to an item of the
 * optimizer, or it is parameter `index` of a model. The pointer to the other of the two, `item` or
 * `model`, is NULL. */
typedef tsr_status visitor(norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                           tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                           void *user);

static tsr_status visit_model(norm *n, tsr__optimizer_model *model, visitor *visit, void *user)
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

static tsr_status visit_all(norm *n, visitor *visit, void *user)
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

/* This rank's part of each sum -------------------------------------------------------------------
 *
 * Several ranks may have the same part along shard_dim, for example if there are fewer kv heads
 * than ranks. The lowest of these ranks adds the squares of the part. In this file, the share of a
 * rank is the range of elements whose squares the rank adds. */

/* The offsets and lengths of the parts of all ranks of a tensor-parallel group. */
typedef struct shares {
    tsr_group *group;
    int64_t *mine, *all; /* `mine` is [parameters, 2], `all` is [ranks, parameters, 2] */
    size_t count, capacity, next;
} shares;

static tsr_status list_share(norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                             tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                             void *user)
{
    shares *s = user;
    (void)n, (void)item, (void)model, (void)index;
    if (tensor != s->group || parameter->shard_dim < 0)
        return TSR_OK;
    TSR__TRY(tsr__grow((void **)&s->mine, &s->capacity, 2 * (s->count + 1), sizeof *s->mine));
    s->mine[2 * s->count] = parameter->offset;
    s->mine[2 * s->count + 1] = parameter->length;
    s->count++;
    return TSR_OK;
}

/* Removes elements other … other_end − 1 from the range first … end − 1, because a lower rank has
 * them. */
static tsr_status take_away(const tsr_parameter *parameter, int64_t other, int64_t other_end,
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

static tsr_status set_share(norm *n, tsr_group *tensor, const tsr_parameter *parameter,
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
        TSR__TRY(take_away(parameter, other[0], other[0] + other[1], &first, &end));
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

/* Returns `mine` if it is an error, and an error if another rank has one. All ranks of the group
 * call it, so that no rank waits for one that has failed. */
static tsr_status agree(tsr_group *group, tsr_status mine)
{
    const tsr__error why = tsr__error_take();
    const int32_t failed = mine != TSR_OK;
    int32_t any;
    TSR__TRY(tsr_comm_all_reduce(tsr_group_comm(group), &failed, &any, 1, TSR_I32, TSR_OP_MAX));
    if (mine != TSR_OK) {
        tsr__error_put_back(&why);
        return mine;
    }
    return any ? another_failed() : TSR_OK;
}

/* `status` is that of the work before, which may have failed on some ranks. */
static tsr_status share_in_group(norm *n, tsr_group *group, tsr_status status)
{
    shares s = {.group = group};
    const size_t ranks = (size_t)tsr_group_size(group);
    if (status == TSR_OK)
        status = visit_all(n, list_share, &s);
    if (status == TSR_OK && s.count > 0) {
        s.all = tsr__calloc(2 * ranks * s.count, sizeof *s.all);
        status = s.all ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    status = agree(group, status);
    if (status == TSR_OK && s.count > 0)
        status = tsr_comm_all_gather(tsr_group_comm(group), s.mine, s.all, 2 * s.count, TSR_I64);
    if (status == TSR_OK)
        status = visit_all(n, set_share, &s);
    tsr__free(s.mine);
    tsr__free(s.all);
    return status;
}

/* Sets this rank's shares to everything that the rank has. Afterwards share_in_group removes the
 * elements that lower ranks have. */
static tsr_status share_all(norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                            tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                            void *user)
{
    (void)n, (void)user;
    /* If all ranks of the layer's group have the full parameter, the first rank adds it. */
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

static tsr_status make_shares(norm *n)
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

static bool has_shares(const norm *n)
{
    const tsr_optimizer *optimizer = n->optimizer;
    return optimizer->shared_items == optimizer->item_count &&
           optimizer->shared_models == optimizer->model_count &&
           optimizer->shared_group == n->own_group;
}

/* This rank's sums ------------------------------------------------------------------------------
 */

static tsr_status find_class(norm *n, tsr_group *data, tsr_group *tensor, class **out)
{
    for (int i = 0; i < n->class_count; i++) {
        *out = &n->classes[i];
        if ((*out)->data == data && (*out)->tensor == tensor)
            return TSR_OK;
    }
    TSR__REQUIRE(n->class_count < MAX_CLASSES, "%s: the parameters belong to more than %d groups",
                 who, (int)MAX_CLASSES);
    *out = &n->classes[n->class_count++];
    **out = (class){.data = data, .tensor = tensor};
    return TSR_OK;
}

static tsr_group *data_group(const tsr__optimizer_model *model)
{
    return model ? several(model->fsdp->group) : NULL;
}

/* Adds the class of a parameter, even if this rank has nothing to add to the class's sum. So all
 * ranks have the same classes in the same order. */
static tsr_status add_class(norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                            tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                            void *user)
{
    class *unused;
    (void)parameter, (void)item, (void)index, (void)user;
    return find_class(n, data_group(model), tensor, &unused);
}

static tsr_status add_gradient(class *to, const tsr_tensor *grad)
{
    void *grads = (void *)to->grads;
    TSR__TRY(tsr__grow(&grads, &to->capacity, to->count + 1, sizeof *to->grads));
    to->grads = grads;
    to->grads[to->count++] = grad;
    return TSR_OK;
}

static tsr_status add_item(norm *n, const tsr__optimizer_item *item, class *to)
{
    const tsr_parameter *parameter = tsr__optimizer_parameter(item);
    if (item->own_count == 0 || !tsr__optimizer_has_gradient(item))
        return TSR_OK;
    if (parameter->shard_dim < 0 || item->own_count == parameter->length)
        return add_gradient(to, parameter->grad);
    TSR__TRY(tsr__grow((void **)&n->views, &n->view_capacity, n->view_count + 1, sizeof *n->views));
    TSR__TRY(tsr_tensor_slice(parameter->grad, parameter->shard_dim, item->own_first,
                              item->own_first + item->own_count, 1, &n->views[n->view_count]));
    return add_gradient(to, n->views[n->view_count++]);
}

static bool counted_elsewhere(const norm *n, const tsr_parameter *parameter)
{
    for (const char *const *name = n->elsewhere; name && *name; name++)
        if (strcmp(*name, parameter->name) == 0)
            return true;
    return false;
}

static tsr_status add_parameter(norm *n, tsr_group *tensor, const tsr_parameter *parameter,
                                tsr__optimizer_item *item, tsr__optimizer_model *model, int index,
                                void *user)
{
    class *to;
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
static tsr_status sum_scaled(norm *n, tsr_tensor *sums, float scale, float *out)
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

/* Computes the sums again with another scale. Uses the new sums only for the classes whose first
 * sum is out of range. */
static tsr_status sum_again(norm *n, tsr_tensor *sums, double limit, float scale)
{
    float again[MAX_CLASSES];
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

static tsr_status sum_local(norm *n)
{
    tsr_device *device = tsr_stream_device(n->optimizer->params.stream);
    float first[MAX_CLASSES];
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

/* All ranks' sums -------------------------------------------------------------------------------
 */

/* What ranks add up for each class: the sum, the number of ranks that have failed, and the number
 * of ranks whose shares (see make_shares) are not up to date. */
typedef struct message {
    double sum, failed, unshared;
} message;

static tsr_status reduce(tsr_comm *comm, message *m)
{
    double values[] = {m->sum, m->failed, m->unshared};
    if (!comm)
        return TSR_OK;
    TSR__TRY(tsr_comm_all_reduce(comm, values, values, 3, TSR_F64, TSR_OP_SUM));
    *m = (message){values[0], values[1], values[2]};
    return TSR_OK;
}

static tsr_status check_groups(const norm *n)
{
    for (int i = 0; i < n->class_count; i++) {
        if (n->classes[i].data)
            TSR__TRY(tsr__group_check(n->classes[i].data));
        if (n->classes[i].tensor)
            TSR__TRY(tsr__group_check(n->classes[i].tensor));
    }
    return TSR_OK;
}

/* Adds the sums of all ranks. Each rank sends whether it has failed together with its sums, so that
 * no rank waits for a rank that has failed. */
static tsr_status sum_over_ranks(norm *n, tsr_status mine, double *out)
{
    const tsr__error why = tsr__error_take();
    message all = {0};
    for (int i = 0; i < n->class_count; i++) {
        message m = {.sum = mine == TSR_OK ? n->classes[i].sum : 0,
                     .failed = mine != TSR_OK,
                     .unshared = !has_shares(n)};
        TSR__TRY(reduce(tsr_group_comm(n->classes[i].data), &m));
        TSR__TRY(reduce(tsr_group_comm(n->classes[i].tensor), &m));
        all.sum += m.sum;
        all.failed += m.failed;
        all.unshared += m.unshared;
    }
    const double unshared = all.unshared; /* which other stages need not know */
    all.failed += mine != TSR_OK;         /* if there are no classes */
    TSR__TRY(reduce(n->stages, &all));
    if (unshared > 0) /* this makes all ranks compute the shares again in the next call */
        n->optimizer->shared_items = SIZE_MAX;
    if (mine != TSR_OK) {
        tsr__error_put_back(&why);
        return mine;
    }
    if (all.failed > 0)
        return another_failed();
    *out = all.sum;
    return TSR_OK;
}

/* Prepares the lists of gradients. `mine` is what has failed on this rank only, which the other
 * ranks must get to know in sum_over_ranks. */
static tsr_status prepare(norm *n, tsr_status *mine)
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

static double factor_of(double value, float max_norm)
{
    const double factor = isinf(max_norm) ? 1 : (double)max_norm / (value + 1e-6);
    return factor > 1 ? 1 : factor; /* NaN stays NaN */
}

static tsr_status clip_now(norm *n, tsr_status mine, float max_norm, double loss_scale)
{
    double sum = 0;
    if (mine == TSR_OK && n->class_count > 0)
        mine = sum_local(n);
    TSR__TRY(sum_over_ranks(n, mine, &sum));
    tsr_optimizer *optimizer = n->optimizer;
    const double value = sqrt(sum) / loss_scale;
    optimizer->scale =
        (tsr__gradient_scale){.value = (float)(factor_of(value, max_norm) / loss_scale)};
    optimizer->norm.exists = true;
    optimizer->norm.waits = false;
    optimizer->norm.value = value;
    return TSR_OK;
}

/* Without waiting for the device -----------------------------------------------------------------
 *
 * If this rank has all parameters, the device computes the factor, too, and the host reads the norm
 * later. Otherwise the sums are added on the host, and the device only gets the factor from it. */

static bool is_alone(const norm *n)
{
    return n->class_count == 1 && !n->classes[0].data && !n->classes[0].tensor &&
           (!n->stages || tsr_comm_size(n->stages) == 1);
}

static tsr_status make_memory(tsr_optimizer *optimizer)
{
    tsr__optimizer_norm *last = &optimizer->norm;
    tsr_device *device = tsr_stream_device(optimizer->params.stream);
    const int64_t one = 1, floats = TSR__SCALE_FLOATS;
    if (!last->sum)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, 1, &one, &last->sum));
    if (!last->scale)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, 1, &floats, &last->scale));
    if (!last->seen)
        TSR__TRY(tsr_tensor_create_host(device, TSR_F32, 1, &one, &last->seen));
    return TSR_OK;
}

static tsr_status scale_on_device(norm *n, float max_norm, double loss_scale)
{
    tsr_optimizer *optimizer = n->optimizer;
    tsr_stream *stream = optimizer->params.stream;
    tsr__optimizer_norm *last = &optimizer->norm;
    const class *all = &n->classes[0];
    TSR__TRY(tsr_sum_squares(stream, last->sum, all->grads, (int)all->count, 1));
    TSR__TRY(tsr__clip_scale(stream, last->scale, last->sum, max_norm, (float)loss_scale));
    last->exists = false; /* until there is a new one */
    TSR__TRY(tsr_copy(stream, last->seen, last->sum));
    TSR__TRY(tsr_stream_mark(stream, &last->point));
    last->loss_scale = loss_scale;
    last->exists = last->waits = true;
    return TSR_OK;
}

static tsr_status scale_on_host(norm *n, tsr_status mine, float max_norm, double loss_scale)
{
    TSR__TRY(clip_now(n, mine, max_norm, loss_scale));
    tsr_optimizer *optimizer = n->optimizer;
    const bool steps = isfinite(optimizer->norm.value);
    const float scale[TSR__SCALE_FLOATS] = {steps ? optimizer->scale.value : 0, steps};
    return tsr_tensor_upload(optimizer->params.stream, optimizer->norm.scale, scale, sizeof scale);
}

static tsr_status clip_deferred(norm *n, tsr_status mine, float max_norm, double loss_scale)
{
    if (mine == TSR_OK)
        mine = make_memory(n->optimizer);
    if (mine == TSR_OK && is_alone(n))
        TSR__TRY(scale_on_device(n, max_norm, loss_scale));
    else
        TSR__TRY(scale_on_host(n, mine, max_norm, loss_scale));
    n->optimizer->scale = (tsr__gradient_scale){.at = n->optimizer->norm.scale};
    return TSR_OK;
}

tsr_status tsr_optimizer_clip(tsr_optimizer *optimizer, float max_norm,
                              const tsr_optimizer_clip_params *params, double *norm_out)
{
    static const tsr_optimizer_clip_params none;
    TSR__REQUIRE(optimizer, "%s: optimizer is NULL", who);
    TSR__REQUIRE(max_norm >= 0, "%s: max_norm is %g; it must be at least 0", who, (double)max_norm);
    params = params ? params : &none;
    TSR__REQUIRE(isfinite(params->loss_scale) && params->loss_scale >= 0,
                 "%s: loss_scale is %g; it must be finite and more than 0", who,
                 (double)params->loss_scale);
    TSR__REQUIRE(!params->deferred || !norm_out,
                 "%s: norm must be NULL with `deferred`; tsr_optimizer_norm returns it", who);
    const double loss_scale = params->loss_scale == 0 ? 1 : (double)params->loss_scale;
    norm n = {.optimizer = optimizer,
              .own_group = params->group,
              .stages = params->stages,
              .elsewhere = params->counted_elsewhere};
    tsr_status mine, status = prepare(&n, &mine);
    if (status == TSR_OK)
        status = params->deferred ? clip_deferred(&n, mine, max_norm, loss_scale)
                                  : clip_now(&n, mine, max_norm, loss_scale);
    norm_finish(&n);
    TSR__TRY(status);
    optimizer->scaled = true;
    if (norm_out)
        *norm_out = optimizer->norm.value;
    return TSR_OK;
}

tsr_status tsr_optimizer_norm(tsr_optimizer *optimizer, double *out)
{
    TSR__REQUIRE(optimizer && out, "optimizer_norm: %s is NULL", optimizer ? "out" : "optimizer");
    tsr__optimizer_norm *last = &optimizer->norm;
    TSR__REQUIRE(last->exists, "optimizer_norm: no norm has been computed; call optimizer_clip");
    if (last->waits) {
        void *sum;
        TSR__TRY(tsr_stream_wait_point(optimizer->params.stream, last->point, UINT64_MAX));
        TSR__TRY(tsr_tensor_map(last->seen, &sum));
        last->value = sqrt((double)*(const float *)sum) / last->loss_scale;
        last->waits = false;
    }
    *out = last->value;
    return TSR_OK;
}
