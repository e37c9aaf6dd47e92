/* The adapters of a stack in its passes. */
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

bool tsr__stack_is_frozen(const tsr_stack *s)
{
    if ((s->embedding && !tsr__layer_is_frozen(s->embedding)) ||
        (s->norm && !tsr__layer_is_frozen(s->norm)) || (s->head && !tsr__layer_is_frozen(s->head)))
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
