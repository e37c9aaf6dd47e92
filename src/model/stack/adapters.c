/* The adapters of a stack in its passes. */
#include "base/error.h"
#include "model/stack/stack.h"
#include "parallel/internal.h"

/* Ends the use of the adapters before `end`. */
static tsr_status end_before(const tsr_stack *s, const tsr__stack_adapter *end, tsr_status status)
{
    for (const tsr__stack_adapter *a = s->adapters; a != end; a = a->next) {
        if (!a->sharded || !a->is_enabled)
            continue;
        if (status == TSR_OK)
            status = tsr_fsdp_end(a->sharded, 0);
        else
            tsr__fsdp_abandon(a->sharded, 0);
    }
    return status;
}

tsr_status tsr__stack_adapters_begin(tsr_stack *s, tsr_pass pass)
{
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next) {
        if (!a->is_enabled)
            continue;
        tsr_status status = a->sharded ? tsr_fsdp_begin(a->sharded, 0, pass) : TSR_OK;
        if (status == TSR_OK && pass == TSR_PASS_BACKWARD) {
            status = tsr__adapters_begin_backward(a->layer);
            if (status != TSR_OK && a->sharded)
                tsr__fsdp_abandon(a->sharded, 0);
        }
        if (status != TSR_OK)
            return end_before(s, a, status);
    }
    return TSR_OK;
}

tsr_status tsr__stack_adapters_end(tsr_stack *s, tsr_pass pass, tsr_status status)
{
    for (const tsr__stack_adapter *a = s->adapters; a; a = a->next)
        if (status == TSR_OK && a->is_enabled && pass == TSR_PASS_BACKWARD)
            status = tsr__adapters_sum(a->layer);
    return end_before(s, NULL, status);
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
