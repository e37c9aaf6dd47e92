/* Creates the layer of a mixture of experts. */
#include "parallel/layers/moe.h"

#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/internal.h"
#include "parallel/layers/norm_layer.h"

static void finish_moe(tsr_layer *layer)
{
    tsr__moe *m = (tsr__moe *)layer;
    tsr_tensor_destroy(&m->local);
    tsr_tensor_destroy(&m->shared_id);
    tsr_tensor_destroy(&m->shared_weight);
    tsr_tensor_destroy(&m->balance);
    tsr__free(m->division.sizes);
    tsr__free(m->shared_division.sizes);
}

static tsr_status moe_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                              tsr_tensor **y)
{
    return tsr__moe_forward_added(layer, x, NULL, NULL, saved, y);
}

static const tsr__layer_type moe_type = {.name = "moe",
                                         .forward = moe_forward,
                                         .backward = tsr__moe_backward,
                                         .finish = finish_moe,
                                         .forward_added = tsr__moe_forward_added};

/* Checks ------------------------------------------------------------------------------------- */

static tsr_status check_sizes(const tsr_layer *layer, const tsr_moe_params *params)
{
    TSR__REQUIRE(params->input_size >= 1 && params->hidden_size >= 1 &&
                     params->input_size <= INT32_MAX && params->hidden_size <= INT32_MAX,
                 "%s: input_size is %lld and hidden_size %lld; both must be 1 to 2^31 - 1",
                 layer->who, (long long)params->input_size, (long long)params->hidden_size);
    TSR__REQUIRE(params->shared_size >= 0 && params->shared_size <= INT32_MAX,
                 "%s: shared_size is %lld; it must be 0 to 2^31 - 1", layer->who,
                 (long long)params->shared_size);
    TSR__REQUIRE(!params->shared_gate || params->shared_size > 0,
                 "%s: shared_gate is set, but shared_size is 0", layer->who);
    TSR__REQUIRE((unsigned)params->activation <= TSR_EXPERT_SWIGLU_OAI,
                 "%s: activation %d is not a tsr_expert_activation", layer->who,
                 (int)params->activation);
    TSR__REQUIRE(params->limit >= 0, "%s: limit is %g; it must not be negative", layer->who,
                 (double)params->limit);
    return TSR_OK;
}

static tsr_status check_route(const tsr_layer *layer, const tsr_moe_params *params,
                              tsr_route_params *out)
{
    const tsr_status status = TSR__TAKE_PART(tsr_route_params, params->route, out);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: route", layer->who);
    TSR__REQUIRE(!out->bias, "%s: route.bias is set; the layer has a parameter for it, choice_bias",
                 layer->who);
    return tsr__route_check(layer->who, out, params->experts, params->experts_used);
}

/* Parameters --------------------------------------------------------------------------------- */

static tsr_status add_parameter(tsr__moe *m, tsr__moe_parameter which, tsr__parameter_spec spec,
                                const char *name)
{
    m->index[which] = m->base.parameter_count;
    spec.name = name;
    return tsr__parameter_add(&m->base, &spec);
}

/* Gives a parameter of experts memory for those of this rank's team only. */
static void set_team(const tsr__moe *m, tsr__moe_parameter which)
{
    tsr__layer_parameter *p = m->base.parameter[m->index[which]];
    p->in_team = m->in_teams;
    p->team_first = m->first;
    p->team_count = m->count;
}

/* Adds the weight and the bias of one of the three matrices of all experts. */
static tsr_status add_matrix(tsr__moe *m, tsr__moe_parameter which, const tsr__parameter_spec *base,
                             int64_t rows, int64_t columns, int inside, const char *const names[2],
                             bool bias)
{
    tsr__parameter_spec spec = *base;
    spec.ndim = 3;
    spec.shape[0] = m->experts;
    spec.shape[1] = rows;
    spec.shape[2] = columns;
    spec.fan_in = columns;
    spec.fan_out = rows;
    spec.shard_dim = m->by_experts ? 0 : inside;
    spec.division = &m->division;
    spec.divisible = m->divisible;
    TSR__TRY(add_parameter(m, which, spec, names[0]));
    set_team(m, which);
    if (!bias)
        return TSR_OK;
    spec.ndim = 2;
    spec.shape[2] = 0;
    spec.bias = true;
    spec.shard_dim = m->by_experts ? 0 : inside == 1 ? 1 : -1;
    TSR__TRY(add_parameter(m, which + 1, spec, names[1]));
    set_team(m, which + 1);
    return TSR_OK;
}

static tsr_status add_router(tsr__moe *m, const tsr__parameter_spec *base,
                             const tsr_moe_params *params)
{
    tsr__parameter_spec spec = *base;
    spec.dtype = TSR_F32; /* all ranks choose alike, and as exactly as possible */
    spec.ndim = 2;
    spec.shape[0] = m->experts;
    spec.shape[1] = m->input_size;
    spec.fan_in = m->input_size;
    spec.fan_out = m->experts;
    spec.shard_dim = -1;
    TSR__TRY(add_parameter(m, TSR__MOE_ROUTER, spec, "router.weight"));
    spec.ndim = 1;
    spec.shape[1] = 0;
    spec.bias = true;
    if (params->router_bias)
        TSR__TRY(add_parameter(m, TSR__MOE_ROUTER_BIAS, spec, "router.bias"));
    if (spec.init.kind != TSR_INIT_NONE)
        spec.init.kind = TSR_INIT_ZEROS;
    if (params->choice_bias)
        TSR__TRY(add_parameter(m, TSR__MOE_CHOICE_BIAS, spec, "router.choice_bias"));
    return TSR_OK;
}

/* Adds a weight of ones, [size], that all ranks have. */
static tsr_status add_ones(tsr__moe *m, tsr__moe_parameter which, int64_t size, const char *name)
{
    const tsr__parameter_spec spec = {.dtype = TSR_F32,
                                      .grad_dtype = TSR_F32,
                                      .ndim = 1,
                                      .shape = {size},
                                      .shard_dim = -1,
                                      .init = {.kind = TSR_INIT_DEFAULT},
                                      .fan_in = size,
                                      .fan_out = size,
                                      .ones = true};
    return add_parameter(m, which, spec, name);
}

static tsr_status add_experts(tsr__moe *m, const tsr__parameter_spec *base,
                              const tsr_moe_params *params)
{
    static const char *const gate[] = {"experts.gate.weight", "experts.gate.bias"},
                             *const up[] = {"experts.up.weight", "experts.up.bias"},
                             *const down[] = {"experts.down.weight", "experts.down.bias"};
    tsr__parameter_spec spec = *base;
    TSR__TRY(
        add_matrix(m, TSR__MOE_GATE, &spec, m->hidden_size, m->input_size, 1, gate, params->bias));
    TSR__TRY(add_matrix(m, TSR__MOE_UP, &spec, m->hidden_size, m->input_size, 1, up, params->bias));
    tsr_init_params output_init;
    TSR__TRY(tsr__layer_init(&m->base, "output_init", params->output_init, &output_init));
    if (output_init.kind != TSR_INIT_DEFAULT)
        spec.init = output_init;
    return add_matrix(m, TSR__MOE_DOWN, &spec, m->input_size, m->hidden_size, 2, down,
                      params->bias);
}

static tsr_status add_shared(tsr__moe *m, const tsr__parameter_spec *base,
                             const tsr_moe_params *params)
{
    if (params->shared_size == 0)
        return TSR_OK;
    TSR__TRY(tsr__layer_partition(&m->base, "shared_size", m->shared_size, "shared_partition",
                                  params->shared_partition, &m->shared_division));
    tsr__parameter_spec spec = *base;
    spec.ndim = 2;
    spec.division = &m->shared_division;
    spec.shape[0] = spec.fan_out = m->shared_size;
    spec.shape[1] = spec.fan_in = m->input_size;
    TSR__TRY(add_parameter(m, TSR__MOE_SHARED_GATE, spec, "shared.gate.weight"));
    TSR__TRY(add_parameter(m, TSR__MOE_SHARED_UP, spec, "shared.up.weight"));
    spec.shape[0] = spec.fan_out = m->input_size;
    spec.shape[1] = spec.fan_in = m->shared_size;
    spec.shard_dim = 1;
    TSR__TRY(add_parameter(m, TSR__MOE_SHARED_DOWN, spec, "shared.down.weight"));
    if (!params->shared_gate)
        return TSR_OK;
    spec.dtype = TSR_F32;
    spec.shape[0] = spec.fan_out = 1;
    spec.shape[1] = spec.fan_in = m->input_size;
    spec.shard_dim = -1;
    return add_parameter(m, TSR__MOE_SHARED_ROUTER, spec, "shared.router.weight");
}

static tsr_status divide_over_teams(tsr__moe *m, const tsr_moe_params *params)
{
    const int ranks = m->base.size, rank = m->base.rank;
    tsr_partition_params partition;
    TSR__REQUIRE(params->deferred && !params->whole_experts && !params->experts_over_data,
                 "%s: teams goes with deferred, and not with whole_experts or experts_over_data",
                 m->base.who);
    tsr_status status = TSR__TAKE_PART(tsr_partition_params, params->partition, &partition);
    tsr_shard_range *ranges = tsr__calloc(2 * (size_t)ranks, sizeof *ranges);
    m->division.sizes = tsr__calloc((size_t)ranks, sizeof *m->division.sizes);
    if (status == TSR_OK && (!ranges || !m->division.sizes))
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__teams_divide(ranks, params->teams, &partition, m->experts, m->hidden_size,
                                   ranges, ranges + ranks);
    for (int r = 0; status == TSR_OK && r < ranks; r++)
        m->division.sizes[r] = (int64_t)ranges[ranks + r].count;
    if (status == TSR_OK) {
        m->first = (int64_t)ranges[rank].start;
        m->count = (int64_t)ranges[rank].count;
        m->division.first = (int64_t)ranges[ranks + rank].start;
        m->division.length = (int64_t)ranges[ranks + rank].count;
    }
    for (int r = 0; r < rank; r++)
        m->leads = m->leads && params->teams[r] != params->teams[rank];
    tsr__free(ranges);
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "%s: teams", m->base.who);
}

static tsr_status add_parameters(tsr__moe *m, const tsr_moe_params *params)
{
    tsr__parameter_spec spec = {.ndim = 2};
    TSR__TRY(tsr__layer_dtype(&m->base, "dtype", params->dtype, &spec.dtype));
    TSR__TRY(tsr__layer_dtype(&m->base, "grad_dtype", params->grad_dtype, &spec.grad_dtype));
    TSR__TRY(tsr__layer_init(&m->base, "init", params->init, &spec.init));
    TSR__TRY(m->in_teams ? divide_over_teams(m, params)
                         : tsr__layer_partition(&m->base, m->by_experts ? "experts" : "hidden_size",
                                                m->by_experts ? m->experts : m->hidden_size,
                                                "partition", params->partition, &m->division));
    if (params->input_norm)
        TSR__TRY(add_ones(m, TSR__MOE_NORM, m->input_size, "norm.weight"));
    TSR__TRY(add_router(m, &spec, params));
    if (params->router_norm)
        TSR__TRY(add_ones(m, TSR__MOE_ROUTER_SCALE, m->input_size, "router.scale"));
    if (params->expert_scale)
        TSR__TRY(add_ones(m, TSR__MOE_EXPERT_SCALE, m->experts, "router.expert_scale"));
    TSR__TRY(add_experts(m, &spec, params));
    TSR__TRY(add_shared(m, &spec, params));
    for (int i = 0; i < m->base.parameter_count && !params->deferred; i++)
        TSR__TRY(tsr__parameter_allocate(&m->base, i));
    return TSR_OK;
}

/* Writes the table of this rank's experts. */
static tsr_status make_table(tsr__moe *m)
{
    if ((!m->by_experts && !m->in_teams) || m->base.size == 1)
        return TSR_OK;
    const int64_t first = m->in_teams ? m->first : m->division.first,
                  count = m->in_teams ? m->count : m->division.length;
    int32_t numbers[TSR_MAX_EXPERTS];
    for (int64_t e = 0; e < m->experts; e++) {
        const int64_t here = e - first;
        numbers[e] = here >= 0 && here < count ? (int32_t)here : -1;
    }
    TSR__TRY(tsr_tensor_create(m->base.device, TSR_I32, 1, &m->experts, &m->local));
    return tsr_tensor_upload(m->base.stream, m->local, numbers,
                             (uint64_t)m->experts * sizeof *numbers);
}

/* Makes the id and the weight of the shared expert, which are those of all tokens. */
static tsr_status make_shared_pair(tsr__moe *m)
{
    const int64_t one = 1;
    const int32_t id = 0;
    const float weight = 1;
    if (m->shared_size == 0)
        return TSR_OK;
    TSR__TRY(tsr_tensor_create(m->base.device, TSR_I32, 1, &one, &m->shared_id));
    TSR__TRY(tsr_tensor_create(m->base.device, TSR_F32, 1, &one, &m->shared_weight));
    TSR__TRY(tsr_tensor_upload(m->base.stream, m->shared_id, &id, sizeof id));
    return tsr_tensor_upload(m->base.stream, m->shared_weight, &weight, sizeof weight);
}

static tsr_status init_moe(tsr__moe *m, const tsr_moe_params *params)
{
    TSR__TRY(check_sizes(&m->base, params));
    TSR__TRY(check_route(&m->base, params, &m->route));
    m->input_size = params->input_size;
    m->hidden_size = params->hidden_size;
    m->experts = params->experts;
    m->chosen = params->experts_used;
    m->shared_size = params->shared_size;
    m->by_experts = params->whole_experts;
    m->in_teams = params->teams != NULL;
    m->leads = m->in_teams || m->base.rank == 0;
    m->divisible = params->experts_over_data;
    m->reduce_f32 = params->reduce_f32;
    m->activation = params->activation;
    m->limit = params->limit;
    TSR__TRY(tsr__norm_epsilon(&m->base, "norm_epsilon", params->norm_epsilon, &m->norm_epsilon));
    for (int i = 0; i < TSR__MOE_PARAMETERS; i++)
        m->index[i] = -1;
    TSR__TRY(add_parameters(m, params));
    TSR__TRY(make_shared_pair(m));
    return make_table(m);
}

tsr_status tsr_moe_create(const tsr_moe_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "moe: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_moe_params, params);
    tsr_layer *layer;
    TSR__TRY(tsr__layer_new(&moe_type, sizeof(tsr__moe), params->group, params->name, &layer));
    tsr_status status = init_moe((tsr__moe *)layer, params);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}

/* Balance ------------------------------------------------------------------------------------ */

/* Returns the mixture of experts of a layer: itself, or a child of a block. */
static tsr_layer *find_moe(tsr_layer *layer)
{
    tsr_layer *found = layer && layer->type == &moe_type ? layer : NULL;
    for (int i = 0; layer && i < layer->child_count && !found; i++)
        found = find_moe(layer->child[i]);
    return found;
}

/* Returns what has the choice: that of a mixture of experts, or of a block that recomputes. */
static const tsr_layer_saved *find_saved(const tsr_layer_saved *saved)
{
    const tsr_layer_saved *found = saved && saved->expert[TSR__SAVED_IDS] ? saved : NULL;
    for (int i = 0; saved && i < saved->child_count && !found; i++)
        found = find_saved(saved->child[i]);
    return found;
}

void tsr__moe_take_choice(tsr_layer_saved *from, tsr_layer_saved *to)
{
    static const tsr__expert_saved kept[] = {TSR__SAVED_LOGITS, TSR__SAVED_IDS, TSR__SAVED_WEIGHTS};
    if (from->expert[TSR__SAVED_IDS])
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            to->expert[kept[i]] = from->expert[kept[i]];
            from->expert[kept[i]] = NULL;
        }
    for (int i = 0; i < from->child_count; i++)
        if (from->child[i])
            tsr__moe_take_choice(from->child[i], to);
}

tsr_status tsr_moe_set_balance(tsr_layer *layer, const tsr_tensor *dprobabilities)
{
    TSR__REQUIRE(layer, "moe_set_balance: layer is NULL");
    tsr__moe *m = (tsr__moe *)find_moe(layer);
    TSR__REQUIRE(m, "moe_set_balance: %s has no mixture of experts", layer->who);
    tsr_tensor *kept = NULL;
    if (dprobabilities) {
        const tsr_layout *l = tsr_tensor_layout(dprobabilities);
        TSR__REQUIRE(l->dtype == TSR_F32 && l->ndim == 1 && l->shape[0] == m->experts,
                     "%s: dprobabilities is %s %s; f32 [%lld] is needed", layer->who,
                     tsr_dtype_name(l->dtype), TSR__SHAPE_OF(dprobabilities),
                     (long long)m->experts);
        TSR__TRY(tsr__keep(dprobabilities, &kept));
    }
    tsr_tensor_destroy(&m->balance);
    m->balance = kept;
    return TSR_OK;
}

tsr_status tsr_moe_get_choice(const tsr_layer_saved *saved, tsr_moe_choice *out)
{
    TSR__REQUIRE(saved && out, "moe_get_choice: %s is NULL", saved ? "out" : "saved");
    const tsr_layer_saved *own = find_saved(saved);
    TSR__REQUIRE(own, "moe_get_choice: `saved` is from %s and has no choice of experts",
                 saved->layer->who);
    const tsr_moe_choice choice = {
        .struct_size = sizeof choice,
        .logits = own->expert[TSR__SAVED_LOGITS],
        .ids = own->expert[TSR__SAVED_IDS],
        .weights = own->expert[TSR__SAVED_WEIGHTS],
    };
    TSR__GIVE(tsr_moe_choice, &choice, out);
    return TSR_OK;
}
