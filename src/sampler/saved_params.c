/* A sampler's parameters in saved states. With them, an error text can name the first parameter
 * that differs between a state and the sampler. In a state, they follow the header:
 *
 *     size of what follows: u8  values …  kind of the wrapped sampler: u8  its values …  255
 *
 * The values of each sampler are in the order in which its kind adds them. 255 ends the list. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "sampler/order/names.h"
#include "sampler/sampler.h"

#define NO_SAMPLER 255

void tsr__sampler_add_param(tsr_sampler *sampler, const char *name, tsr__sampler_param_form form,
                            uint64_t value)
{
    sampler->params[sampler->param_count++] = (tsr__sampler_param){name, form, value};
    sampler->fingerprint = tsr__fingerprint(sampler->fingerprint, value);
}

void tsr__sampler_add_torch(tsr_sampler *sampler, bool is_torch, const tsr_torch_options *torch)
{
    const tsr_torch_options chosen = is_torch ? *torch : (tsr_torch_options){0};
    tsr__sampler_add_param(sampler, "torch.version", TSR__PARAM_COUNT, (uint64_t)chosen.version);
    tsr__sampler_add_param(sampler, "torch.global_generator", TSR__PARAM_FLAG,
                           chosen.global_generator);
    tsr__sampler_add_param(sampler, "torch.data_loader", TSR__PARAM_FLAG, chosen.data_loader);
    tsr__sampler_add_param(sampler, "torch.seed_high", TSR__PARAM_SIGNED,
                           (uint64_t)(int64_t)chosen.seed_high);
}

void tsr__sampler_set_inner(tsr_sampler *sampler, tsr_sampler *inner)
{
    sampler->inner = tsr__sampler_retain(inner);
    sampler->fingerprint = tsr__fingerprint(~sampler->fingerprint, inner->fingerprint);
}

/* Returns the value as a state stores it: a signed value in zigzag form (tsr__zigzag), and only
 * some bits of a hash. */
static uint64_t stored(const tsr__sampler_param *param)
{
    if (param->form == TSR__PARAM_SIGNED)
        return tsr__zigzag(tsr__as_i64(param->value));
    return param->form == TSR__PARAM_HASH ? param->value >> 32 : param->value;
}

void tsr__state_put_params(tsr__state_writer *writer, const tsr_sampler *sampler)
{
    const size_t start = writer->size;
    tsr__state_put_bytes(writer, &(uint8_t){0}, 1);
    for (; sampler != NULL; sampler = sampler->inner) {
        for (int i = 0; i < sampler->param_count; i++)
            tsr__state_put(writer, stored(&sampler->params[i]));
        const uint8_t inner =
            sampler->inner != NULL ? (uint8_t)sampler->inner->class_->kind : NO_SAMPLER;
        tsr__state_put_bytes(writer, &inner, 1);
    }
    const size_t size = writer->size - start - 1;
    if (size > UINT8_MAX)
        writer->full = true;
    if (!writer->full)
        writer->data[start] = (uint8_t)size;
}

/* Formats the value of a parameter, as it is stored in a state, for an error text. */
static const char *format_value(tsr__sampler_param_form form, uint64_t value, char text[32])
{
    switch (form) {
    case TSR__PARAM_FLAG:
        return value != 0 ? "true" : "false";
    case TSR__PARAM_ORDER:
        return tsr__order_name((tsr_order)value);
    case TSR__PARAM_TAIL:
        return tsr__tail_name((tsr_tail)value);
    case TSR__PARAM_SPLIT:
        return tsr__split_name((tsr_split)value);
    case TSR__PARAM_SIGNED:
        snprintf(text, 32, "%" PRId64, tsr__unzigzag(value));
        break;
    case TSR__PARAM_COUNT:
    case TSR__PARAM_HASH:
        snprintf(text, 32, "%" PRIu64, value);
        break;
    }
    return text;
}

static tsr_status param_differs(const tsr__state_reader *reader, const tsr_sampler *sampler,
                                const tsr__sampler_param *param, uint64_t value)
{
    const char *kind = tsr__sampler_kind_name(sampler->class_->kind);
    char text[32], own_text[32];
    if (param->form == TSR__PARAM_HASH)
        return TSR__STATE_FAIL(reader, "the state's %s sampler differs from this one in its %s",
                               kind, param->name);
    return TSR__STATE_FAIL(reader, "the state's %s sampler has %s = %s, this one has %s = %s", kind,
                           param->name, format_value(param->form, value, text), param->name,
                           format_value(param->form, stored(param), own_text));
}

static tsr_status inner_differs(const tsr__state_reader *reader, const tsr_sampler *sampler,
                                unsigned inner)
{
    const char *kind = tsr__sampler_kind_name(sampler->class_->kind);
    if (sampler->inner == NULL)
        return TSR__STATE_FAIL(reader,
                               "the state's %s sampler wraps a %s sampler, this one wraps none",
                               kind, tsr__sampler_kind_name(inner));
    const char *own_kind = tsr__sampler_kind_name(sampler->inner->class_->kind);
    if (inner == NO_SAMPLER)
        return TSR__STATE_FAIL(reader,
                               "the state's %s sampler wraps no sampler, this one wraps a %s "
                               "sampler",
                               kind, own_kind);
    return TSR__STATE_FAIL(reader,
                           "the state's %s sampler wraps a %s sampler, this one a %s sampler", kind,
                           tsr__sampler_kind_name(inner), own_kind);
}

/* Compares the parameters of the state with those of the sampler. Fails with a text about the first
 * parameter that differs. Returns TSR_OK if it finds none. */
static tsr_status find_difference(const tsr_sampler *sampler, tsr__state_reader *reader)
{
    for (; sampler != NULL; sampler = sampler->inner) {
        for (int i = 0; i < sampler->param_count; i++) {
            tsr__state_reader before = *reader;
            uint64_t value;
            if (tsr__state_get(reader, &value) != TSR_OK)
                return TSR_OK;
            if (value != stored(&sampler->params[i]))
                return param_differs(&before, sampler, &sampler->params[i], value);
        }
        const unsigned own_kind =
            sampler->inner != NULL ? sampler->inner->class_->kind : NO_SAMPLER;
        const uint8_t *inner;
        if (tsr__state_get_bytes(reader, 1, &inner) != TSR_OK)
            return TSR_OK;
        if (*inner != own_kind)
            return inner_differs(reader, sampler, *inner);
    }
    return TSR_OK;
}

tsr_status tsr__state_refuse_params(const tsr_sampler *sampler, const uint8_t *bytes, size_t end)
{
    tsr__state_reader reader = {.data = bytes, .at = TSR__STATE_PARAMS + 1};
    reader.size = reader.at + bytes[TSR__STATE_PARAMS];
    if (reader.size <= end)
        TSR__TRY(find_difference(sampler, &reader));
    return tsr__fail(TSR_ERR_INVALID,
                     "sampler resume: offset 6: the state is that of a %s sampler with other "
                     "parameters",
                     tsr__sampler_kind_name(sampler->class_->kind));
}
