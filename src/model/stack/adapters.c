/* The adapters of a stack in its passes. */
#include "base/alloc.h"
#include "base/error.h"
#include "model/stack/stack.h"
#include "parallel/internal.h"

static bool takes_part(const tsr__stack_adapter *a, const tsr__adapter_pass *pass)
{
    return a->is_enabled && (!pass->is_head || a->has_head);
}

/* Ends the use of the adapters before `end`. */
static tsr_status end_before(const tsr_stack *s, const tsr__adapter_pass *pass,
                             const tsr__stack_adapter *end, tsr_status status)
{
    for (const tsr__stack_adapter *a = s->adapters; a != end; a = a->next) {
        if (!takes_part(a, pass))
            continue;
        tsr__adapters_set_dropout(a->layer, 0, 0, 0);
        if (a->sharded && status == TSR_OK)
            status = tsr_fsdp_end(a->sharded, 0);
        else if (a->sharded)
            tsr__fsdp_abandon(a->sharded, 0);
    }
    return status;
}

static tsr_status begin_one(const tsr__stack_adapter *a, const tsr__adapter_pass *pass)
{
    if (a->sharded)
        TSR__TRY(tsr_fsdp_begin(a->sharded, 0, pass->pass));
    if (pass->pass == TSR_PASS_FORWARD && !pass->is_head && !tsr__layer_is_frozen(a->layer))
        tsr__adapters_changed(a->layer);
    const tsr_status status =
        pass->pass == TSR_PASS_BACKWARD ? tsr__adapters_begin_backward(a->layer) : TSR_OK;
    if (status != TSR_OK && a->sharded)
        tsr__fsdp_abandon(a->sharded, 0);
    if (status == TSR_OK && pass->trained > 0)
        tsr__adapters_set_dropout(a->layer, a->dropout, a->dropout_seed, pass->trained);
    return status;
}

tsr_status tsr__stack_adapters_begin(tsr_stack *s, const tsr__adapter_pass *pass)
{
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next) {
        const tsr_status status = takes_part(a, pass) ? begin_one(a, pass) : TSR_OK;
        if (status != TSR_OK)
            return end_before(s, pass, a, status);
    }
    return TSR_OK;
}

tsr_status tsr__stack_adapters_end(tsr_stack *s, const tsr__adapter_pass *pass, tsr_status status)
{
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next)
        if (status == TSR_OK && takes_part(a, pass) && pass->pass == TSR_PASS_BACKWARD)
            status = tsr__adapters_sum(a->layer);
    return end_before(s, pass, NULL, status);
}

/* Adapters of sequences ---------------------------------------------------------------------- */

static void use_one(tsr_stack *s, const tsr__stack_adapter *one)
{
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next)
        tsr__adapters_choose_one(a->layer, a == one);
}

void tsr__stack_use_none(tsr_stack *s)
{
    if (s->adapters_chosen)
        use_one(s, NULL);
}

void tsr__stack_use_enabled(tsr_stack *s)
{
    if (!s->adapters_chosen)
        return;
    s->adapters_chosen = false;
    tsr_tensor_destroy(&s->adapter_rows);
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next)
        tsr__adapters_choose_enabled(a->layer);
}

static int32_t number_of(const tsr_stack *s, const tsr__stack_adapter *wanted)
{
    int32_t number = 0;
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next, number++)
        if (a == wanted)
            return number;
    return -1;
}

static tsr_status upload_rows(tsr_stack *s, int count, int64_t tokens,
                              const tsr__stack_adapter *const *of, const tsr__stack_adapter *usual)
{
    const int64_t rows = count * tokens, shape[2] = {rows, 1};
    int32_t *ids = tsr__calloc((size_t)rows, sizeof *ids);
    if (!ids)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < rows; i++)
        ids[i] = number_of(s, of[i / tokens] ? of[i / tokens] : usual);
    tsr_tensor_destroy(&s->adapter_rows);
    tsr_status status = tsr_tensor_create(s->device, TSR_I32, 2, shape, &s->adapter_rows);
    if (status == TSR_OK)
        status = tsr_tensor_upload(s->stream, s->adapter_rows, ids, (uint64_t)rows * sizeof *ids);
    tsr__free(ids);
    return status;
}

/* Finds the only adapter that is enabled, or none. */
static tsr_status find_usual(const tsr_stack *s, const tsr__stack_adapter **out)
{
    *out = NULL;
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next) {
        TSR__REQUIRE(!a->is_enabled || !*out,
                     "stack: a pass has sequences with an adapter of their own, and others, but "
                     "several adapters are enabled");
        TSR__REQUIRE(!a->is_enabled ||
                         !(a->has_head || a->has_experts || a->has_latent || a->has_magnitudes),
                     "stack: a pass has sequences with an adapter of their own, but that of the "
                     "others %s",
                     a->has_head      ? "changes the head"
                     : a->has_experts ? "changes experts"
                     : a->has_latent  ? "changes latent attention"
                                      : "has magnitudes (DoRA)");
        *out = a->is_enabled ? a : *out;
    }
    return TSR_OK;
}

tsr_status tsr__stack_use_adapters(tsr_stack *s, int count, int64_t tokens,
                                   const tsr__stack_adapter *const *of)
{
    const tsr__stack_adapter *usual = NULL;
    bool same = true, any = false, all = true;
    int sets = 0, number = 0;
    for (int i = 0; i < count; i++) {
        same = same && of[i] == of[0];
        any = any || of[i];
        all = all && of[i];
    }
    if (!any)
        return TSR_OK;
    if (!all)
        TSR__TRY(find_usual(s, &usual));
    s->adapters_chosen = true;
    if (same) {
        use_one(s, of[0]);
        return TSR_OK;
    }
    TSR__TRY(upload_rows(s, count, tokens, of, usual));
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next)
        sets++;
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next, number++)
        tsr__adapters_choose_by_row(a->layer, number, sets, s->adapter_version, s->adapter_rows);
    return TSR_OK;
}

bool tsr__stack_is_frozen(const tsr_stack *s)
{
    if ((s->embedding && !tsr__layer_is_frozen(s->embedding)) ||
        (s->norm && !tsr__layer_is_frozen(s->norm)) ||
        (s->head && !tsr__layer_is_frozen(s->head)) ||
        (s->input_table && !tsr__layer_is_frozen(s->input_table)))
        return false;
    for (int i = 0; i < s->layer_count; i++)
        if (!tsr__layer_is_frozen(s->blocks[i]))
            return false;
    return true;
}

void tsr__stack_freeze(tsr_stack *s)
{
    tsr_layer_set_frozen(s->embedding, true);
    tsr_layer_set_frozen(s->norm, true);
    tsr_layer_set_frozen(s->head, true);
    tsr_layer_set_frozen(s->input_table, true);
    tsr_layer_set_frozen(s->input_projection, true);
    tsr_layer_set_frozen(s->input_norm, true);
    for (int i = 0; i < s->layer_count; i++)
        tsr_layer_set_frozen(s->blocks[i], true);
}

tsr_status tsr__stack_check_backward(const tsr_stack *s)
{
    TSR__REQUIRE(s->sharded || tsr__stack_is_frozen(s),
                 "stack: backward passes need sharded parameters (tsr_stack_shard) or, for "
                 "adapters, frozen layers");
    return TSR_OK;
}
