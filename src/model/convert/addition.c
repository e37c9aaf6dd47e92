#include "model/convert/addition.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/given.h"
#include "model/convert/conversion.h"
#include "tessera/quant.h"

/* Planning ------------------------------------------------------------------------------------- */

/* Finds a tensor from number *from on, where the one of the last weight was, and sets *from. */
static tsr__converted *find_tensor(tsr__conversion *c, const char *name, size_t *from)
{
    for (size_t i = 0; i < c->count; i++) {
        const size_t number = (*from + i) % c->count;
        if (strcmp(c->tensors[number].name, name) != 0)
            continue;
        *from = number;
        return &c->tensors[number];
    }
    return NULL;
}

/* Checks that the destination's format can hold a changed weight. */
static tsr_status check_dtype(const tsr__converted *t)
{
    if (t->experts.sources && t->transposed)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "convert: tensor %s has matrices of experts that are transposed, to which "
                         "no adapter can be added",
                         t->name);
    const tsr_quant_format *format = tsr_quant_format_of(t->dtype);
    if (!format || format->quantizes)
        return TSR_OK;
    return tsr__fail(
        TSR_ERR_UNSUPPORTED,
        "convert: tensor %s is %s, in which a changed weight cannot be written; choose "
        "another type",
        t->name, format->name);
}

static tsr_status plan_matrix(tsr__conversion *c, int layer, const tsr__parameter *p,
                              int64_t expert, size_t *from)
{
    tsr__adapter_module module;
    tsr__weight to;
    char name[TSR__WEIGHT_NAME];
    const bool all_heads = p->of_heads && !c->adapter->files.gguf;
    if (all_heads && expert > 0) /* the first one has found those of all heads */
        return TSR_OK;
    TSR__TRY(tsr__adapter_file_find(c->adapter, c->config, layer, p, expert, &module));
    if (!module.a)
        return TSR_OK;
    TSR__TRY(tsr__weight_place(&c->target, layer, p->ours, expert, &to, name));
    tsr__converted *t = find_tensor(c, name, from);
    TSR__REQUIRE(t, "convert: the destination has no tensor %s", name);
    TSR__TRY(check_dtype(t));
    const bool by_heads = all_heads && !to.flat && strcmp(p->ours, "attention.k_b.weight") == 0;
    if (to.flat && to.transposed && !all_heads)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "convert: tensor %s has the keys of latent attention as columns, to which "
                         "no adapter can be added",
                         name);
    if (to.flat && all_heads)
        tsr__adapter_place_heads(c->config, layer, p->ours, &to);
    else if (all_heads) /* the matrices follow each other */
        to.all_rows = module.outputs;
    if (module.m && (to.transposed || t->transposed || by_heads))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "convert: tensor %s is transposed, so an adapter with magnitudes (DoRA) "
                         "cannot be merged into it",
                         name);
    tsr__addition *addition = tsr__calloc(1, sizeof *addition);
    if (!addition)
        return TSR_ERR_NO_MEMORY;
    module.scale *= tsr__given_double(c->params->adapter_scale, 1);
    TSR__REQUIRE(fabs(module.scale) < 1e30, "convert: the adapter of %s has scale %g", name,
                 module.scale);
    *addition = (tsr__addition){.next = t->addition,
                                .adapter = c->adapter,
                                .module = module,
                                .to = to,
                                .by_heads = by_heads};
    t->addition = addition;
    c->stats.merged++;
    return TSR_OK;
}

tsr_status tsr__addition_plan(tsr__conversion *c)
{
    tsr__parameter p;
    size_t from = 0;
    if (!c->params->adapter)
        return TSR_OK;
    c->adapter = tsr__calloc(1, sizeof *c->adapter);
    if (!c->adapter)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr__adapter_file_open(c->params->adapter, c->adapter));
    TSR__TRY(tsr__adapter_file_check_family(c->adapter, c->source->family));
    for (int layer = -1; layer < c->config->layers; layer++)
        for (int i = 0; tsr__weights_parameter(c->config, layer, i, &p); i++)
            for (int64_t e = 0; e < (p.experts > 0 ? p.experts : 1); e++)
                TSR__TRY(plan_matrix(c, layer, &p, e, &from));
    return tsr__adapter_file_check_used(c->adapter, c->config);
}

void tsr__addition_finish(tsr__conversion *c)
{
    for (size_t i = 0; i < c->count; i++)
        while (c->tensors[i].addition) {
            tsr__addition *first = c->tensors[i].addition;
            c->tensors[i].addition = first->next;
            tsr__free(first);
        }
    if (c->adapter)
        tsr__adapter_file_finish(c->adapter);
    tsr__free(c->adapter);
}

/* Values --------------------------------------------------------------------------------------- */

/* Returns which row of its matrix in the destination is row i of ours. */
static int64_t row_in_destination(const tsr__weight *to, int64_t i)
{
    const int64_t head = to->interleaved_head, in = head > 0 ? i % head : 0;
    if (head > 0)
        i += in % (head / 2) * 2 + in / (head / 2) - in;
    return to->first_row + tsr__order_in_file(&to->row_order, i) * to->row_step;
}

/* Sets `outputs` and `inputs`. */
static tsr_status find_ours(tsr__addition *m)
{
    const tsr__adapter_module *x = &m->module;
    const int64_t rows = m->to.all_rows;
    if (m->by_heads)
        return TSR_OK;
    m->outputs = tsr__calloc((size_t)rows, sizeof *m->outputs);
    m->inputs = tsr__calloc((size_t)x->inputs, sizeof *m->inputs);
    if (!m->outputs || !m->inputs)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < rows; i++)
        m->outputs[i] = -1;
    for (int64_t i = 0; i < x->outputs; i++)
        m->outputs[row_in_destination(&m->to, i)] = i;
    for (int64_t i = 0; i < x->inputs; i++)
        m->inputs[tsr__order_in_file(&m->to.column_order, i)] = i;
    return TSR_OK;
}

tsr_status tsr__addition_begin(tsr__addition *addition)
{
    for (tsr__addition *m = addition; m; m = m->next) {
        TSR__TRY(find_ours(m));
        TSR__TRY(tsr__adapter_file_read(m->adapter, &m->module, &m->a, &m->b));
        if (m->module.m)
            TSR__TRY(tsr__adapter_file_read_magnitudes(m->adapter, &m->module, &m->m));
    }
    return TSR_OK;
}

void tsr__addition_end(tsr__addition *addition)
{
    for (tsr__addition *m = addition; m; m = m->next) {
        tsr__free(m->a);
        tsr__free(m->b);
        tsr__free(m->m);
        tsr__free(m->outputs);
        tsr__free(m->inputs);
        m->a = m->b = m->m = NULL;
        m->outputs = m->inputs = NULL;
    }
}

/* Adds scale · (row `ours` of B) · A to values[inputs]. */
static void add_row(const tsr__addition *m, int64_t ours, float *values)
{
    const tsr__adapter_module *x = &m->module;
    for (int64_t r = 0; r < x->rank; r++) {
        const float factor = (float)(x->scale * (double)m->b[ours * x->rank + r]);
        const float *a = m->a + r * x->inputs;
        for (int64_t i = 0; i < x->inputs; i++)
            values[i] += factor * a[m->inputs[i]];
    }
    if (!m->m)
        return;
    double square = 1e-37; /* as in passes, so that the norm of a row of zeros is not 0 */
    for (int64_t i = 0; i < x->inputs; i++)
        square += (double)values[i] * (double)values[i];
    const double factor = (double)m->m[ours] / sqrt(square);
    for (int64_t i = 0; i < x->inputs; i++)
        values[i] = (float)((double)values[i] * factor);
}

/* Adds scale · B · (column `input` of A) to a row of a transposed matrix, in the order of
 * add_row. */
static void add_column(const tsr__addition *m, int64_t input, float *values)
{
    const tsr__adapter_module *x = &m->module;
    for (int64_t o = 0; o < m->to.all_rows; o++) {
        if (m->outputs[o] < 0)
            continue;
        const float *b = m->b + m->outputs[o] * x->rank;
        for (int64_t r = 0; r < x->rank; r++)
            values[o] += (float)(x->scale * (double)b[r]) * m->a[r * x->inputs + input];
    }
}

/* Adds scale · (columns of B of a head) · (column of A) to a row of the matrix of a head. `row` is
 * counted from the first matrix. */
static void add_head(const tsr__addition *m, int64_t row, int64_t columns, float *values)
{
    const tsr__adapter_module *x = &m->module;
    const float *b = m->b + row / x->inputs * columns * x->rank;
    for (int64_t i = 0; i < columns; i++)
        for (int64_t r = 0; r < x->rank; r++)
            values[i] += (float)(x->scale * (double)b[i * x->rank + r]) *
                         m->a[r * x->inputs + row % x->inputs];
}

void tsr__addition_add(const tsr__addition *addition, int64_t first, int64_t rows, int64_t columns,
                       float *values)
{
    for (const tsr__addition *m = addition; m; m = m->next)
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = first + i - m->to.matrix * m->to.all_rows;
            if (m->by_heads)
                add_head(m, first + i, columns, values + i * columns);
            else if (m->to.transposed)
                add_column(m, m->inputs[first + i], values + i * columns);
            else if (row >= 0 && row < m->to.all_rows && m->outputs[row] >= 0)
                add_row(m, m->outputs[row], values + i * columns);
        }
}
