/* Which rows and columns of which tensor a parameter is. */
#include <string.h>

#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/elements.h"
#include "model/weights/names.h"
#include "tensor/dtype.h"

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns whether a parameter is the weight of a norm of which some files have 1 less. */
static bool is_norm_weight(const char *ours)
{
    return strstr(ours, "norm") && strcmp(strrchr(ours, '.'), ".weight") == 0 &&
           !starts(ours, "delta_net.");
}

int64_t tsr__order_in_file(const tsr__order *o, int64_t i)
{
    if (o->run == 0)
        return i;
    const int64_t group = o->run * o->runs;
    return o->first + i / group * o->group_step + i % group / o->run * o->run_step + i % o->run;
}

bool tsr__weight_keeps_blocks(const tsr__weight *w, tsr_dtype dtype)
{
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    const tsr__order *order = &w->column_order;
    return tsr__elements_dtype(w->file) != dtype ||
           (!(w->transposed && block > 1) && order->run % block == 0 && order->first % block == 0 &&
            order->group_step % block == 0);
}

/* If gate and up of experts have the same name, they are halves of the rows of one tensor, or
 * alternate rows. */
static void place_expert_rows(const tsr__weights *w, const char *ours, const tsr__weight_name *name,
                              tsr__weight *out)
{
    const bool is_gate = strncmp(ours, "mlp.experts.gate.", 17) == 0,
               is_up = strncmp(ours, "mlp.experts.up.", 15) == 0,
               is_bias = strcmp(strrchr(ours, '.'), ".bias") == 0;
    const char *const others[2][2] = {{"mlp.experts.gate.weight", "mlp.experts.up.weight"},
                                      {"mlp.experts.gate.bias", "mlp.experts.up.bias"}};
    const bool together =
        w->experts == TSR__EXPERTS_MERGED || (w->experts == TSR__EXPERTS_GATE_UP && !is_bias);
    if ((!is_gate && !is_up) ||
        !(together ||
          tsr__weight_same_name(w, tsr__weight_name_of(w, 0, others[is_bias][is_gate]), name)))
        return;
    const bool alternates = w->family->hf_gate_up_alternates && !w->files->gguf;
    out->all_rows = 2 * out->rows;
    out->row_step = alternates ? 2 : 1;
    out->first_row = is_gate ? 0 : alternates ? 1 : out->rows;
}

/* Returns whether two weights of a layer are in one tensor. */
static bool together(const tsr__weights *w, const char *a, const char *b)
{
    return tsr__weight_same_name(w, tsr__weight_name_of(w, 0, a), tsr__weight_name_of(w, 0, b));
}

/* Places rows of a tensor that has all rows of the first key head, then those of the second: of
 * `all` rows of a key head, `rows` from number `first` on. */
static void place_by_key_heads(const tsr_model_delta_net *net, int64_t first, int64_t rows,
                               int64_t all, tsr__weight *out)
{
    out->first_row = first;
    out->all_rows = all * net->key_heads;
    out->row_order = (tsr__order){.run = rows, .runs = 1, .group_step = all};
}

/* The order of files in which head h reads key head h % key_heads, of `unit` rows or columns for
 * each head. In ours, the heads that read the same key head follow each other. */
static tsr__order tiled_order(const tsr__weights *w, const tsr_model_delta_net *net, int64_t unit)
{
    const int64_t each = net->heads / net->key_heads;
    if (!w->files->gguf || !w->family->delta_keys->gguf_tiled || each == 1)
        return (tsr__order){0};
    return (tsr__order){
        .run = unit, .runs = each, .run_step = net->key_heads * unit, .group_step = unit};
}

/* Places a weight of a delta net. */
static void place_delta_net(const tsr__weights *w, const tsr_model_delta_net *net, const char *ours,
                            tsr__weight *out)
{
    const char *what = ours + strlen("delta_net.");
    const int64_t keys = net->key_heads * net->key_dim, values = net->heads * net->value_dim,
                  each = net->heads / net->key_heads, own = each * net->value_dim;
    const bool is_q = *what == 'q', is_k = *what == 'k', is_v = *what == 'v',
               is_z = starts(what, "z."), is_conv = strstr(what, "_conv.") != NULL,
               is_beta = starts(what, "beta."), is_alpha = starts(what, "alpha.");
    const bool joined = w->joined_delta_nets || together(w, "delta_net.q", "delta_net.z");
    if (starts(what, "o.")) {
        out->column_order = tiled_order(w, net, net->value_dim);
    } else if (joined && !is_conv && (is_q || is_k || is_v || is_z)) {
        const int64_t all = 2 * (net->key_dim + own);
        place_by_key_heads(net,
                           is_q   ? 0
                           : is_k ? net->key_dim
                           : is_v ? 2 * net->key_dim
                                  : 2 * net->key_dim + own,
                           is_q || is_k ? net->key_dim : own, all, out);
    } else if (is_q || is_k || is_v) {
        out->first_row = is_q ? 0 : is_k ? keys : 2 * keys;
        out->all_rows = 2 * keys + values;
        out->row_order = is_v ? tiled_order(w, net, net->value_dim) : (tsr__order){0};
        out->has_middle = is_conv && !w->files->gguf;
    } else if (is_z) {
        out->row_order = tiled_order(w, net, net->value_dim);
    } else if ((is_beta || is_alpha) && together(w, "delta_net.beta", "delta_net.alpha")) {
        place_by_key_heads(net, is_beta ? 0 : each, each, 2 * each, out);
    } else if (!starts(what, "norm.")) {
        out->row_order = tiled_order(w, net, 1);
        out->minus_exp = w->files->gguf && strcmp(what, "a_log") == 0;
    }
}

/* Places a weight of a short convolution. */
static void place_short_conv(const tsr__weights *w, const char *ours, tsr__weight *out)
{
    static const char order[] = "bcx";
    const char *what = ours + strlen("short_conv."), *part = strchr(order, *what);
    if (starts(what, "conv.")) {
        out->has_middle = !w->files->gguf;
    } else if (part && what[1] == '.') {
        out->first_row = (part - order) * out->rows;
        out->all_rows = 3 * out->rows;
    }
}

/* Changes the order of rows or columns *start … *start + count − 1, and *start. Of each of the
 * `runs` heads of a key head, the file has those of the rank's key heads one after another. */
static void keep_tiles(tsr__order *order, int64_t *start, int64_t count)
{
    const int64_t unit = order->run, group = unit * order->runs,
                  first = *start / (group > 0 ? group : 1) * unit;
    if (order->runs < 2 || count == 0 || *start % group != 0 || count % group != 0)
        return;
    const int64_t own = count / order->runs, all = order->run_step;
    *order = own == all ? (tsr__order){0}
                        : (tsr__order){.run = own, .runs = 1, .group_step = all, .first = first};
    *start = 0;
}

void tsr__weight_keep_tiles(tsr__weight *w, tsr__weight_part *part)
{
    keep_tiles(&w->row_order, &part->first_row, part->rows);
    keep_tiles(&w->column_order, &part->first_column, part->columns);
}

/* If q and the gate of attention's output have the same name, the rows of a head of q are followed
 * by those of its gate. */
static void place_gated(const tsr__weights *w, const tsr_model_layer *layer, const char *ours,
                        tsr__weight *out)
{
    if (!layer->output_gate || !together(w, "attention.q", "attention.gate"))
        return;
    const bool is_q = starts(ours, "attention.q.");
    const int64_t both = layer->head_dim + layer->value_dim;
    out->first_row = is_q ? 0 : layer->head_dim;
    out->all_rows = layer->heads * both;
    out->row_order = (tsr__order){
        .run = is_q ? layer->head_dim : layer->value_dim, .runs = 1, .group_step = both};
}

/* If q, k and v have the same name, or gate and up, they are consecutive rows of one tensor. */
static void place_rows(const tsr__weights *w, const tsr_model_layer *layer, const char *ours,
                       const tsr__weight_name *name, tsr__weight *out)
{
    const bool is_q = strncmp(ours, "attention.q.", 12) == 0,
               is_k = strncmp(ours, "attention.k.", 12) == 0,
               is_v = strncmp(ours, "attention.v.", 12) == 0;
    out->all_rows = out->rows;
    out->row_step = 1;
    place_expert_rows(w, ours, name, out);
    if (strncmp(ours, "mlp.gate.", 9) == 0 &&
        tsr__weight_same_name(w, tsr__weight_name_of(w, 0, "mlp.up"), name)) {
        out->all_rows = 2 * layer->hidden;
    } else if (strncmp(ours, "mlp.up.", 7) == 0 && layer->gated &&
               tsr__weight_same_name(w, tsr__weight_name_of(w, 0, "mlp.gate"), name)) {
        out->first_row = layer->hidden;
        out->all_rows = 2 * layer->hidden;
    }
    if (starts(ours, "delta_net."))
        place_delta_net(w, layer->delta_net, ours, out);
    if (starts(ours, "short_conv."))
        place_short_conv(w, ours, out);
    if (is_q || starts(ours, "attention.gate."))
        place_gated(w, layer, ours, out);
    if (!is_q && !is_k && !is_v)
        return;
    const int64_t queries = layer->heads * layer->head_dim,
                  keys = layer->kv_heads * layer->head_dim,
                  values = layer->kv_heads * layer->value_dim;
    if (tsr__weight_same_name(w, tsr__weight_name_of(w, 0, is_q ? "attention.k" : "attention.q"),
                              name)) {
        out->first_row = is_q ? 0 : is_k ? queries : queries + keys;
        out->all_rows = queries + keys + values;
    }
    if (!is_v && w->files->gguf && w->family->gguf_interleaved)
        out->interleaved_head = layer->head_dim;
}

/* Finds the matrix of a head of latent attention in a tensor that has those of keys, as columns,
 * and those of values. */
static void place_latent_rows(const tsr__weights *w, const tsr_model_latent *latent,
                              const char *ours, tsr__weight *out, char text[TSR__WEIGHT_NAME])
{
    const int64_t both = latent->nope_dim + latent->value_dim;
    if (w->files->gguf && !w->joint_latents)
        return;
    tsr__weight_replace("attn_k_b", "attn_kv_b", text);
    tsr__weight_replace("attn_v_b", "attn_kv_b", text);
    out->flat = true;
    if (strcmp(ours, "attention.k_b.weight") == 0) {
        out->transposed = true;
        out->all_columns = both;
    } else {
        out->first_row = latent->nope_dim;
        out->all_rows = both;
    }
}

int tsr__weight_shape(const tsr__weights *w, const tsr__weight *place, int ndim, int64_t shape[3])
{
    int count = 0;
    if (place->flat) {
        shape[0] = place->matrices * (place->transposed ? place->all_columns : place->all_rows);
        shape[1] = place->transposed ? place->all_rows : place->columns;
        return 2;
    }
    if (place->matrices > 0)
        shape[count++] = place->matrices;
    /* GGUF files have a matrix of one row as a row. */
    if (ndim == 1 || place->all_rows > 1 || !w->files->gguf)
        shape[count++] = place->transposed ? place->columns : place->all_rows;
    if (place->has_middle)
        shape[count++] = 1;
    if (ndim == 2)
        shape[count++] = place->transposed ? place->all_rows : place->columns;
    return count;
}

tsr_status tsr__weight_place(const tsr__weights *w, int layer, const char *ours, int64_t expert,
                             tsr__weight *out, char text[TSR__WEIGHT_NAME])
{
    const tsr_model_layer *kind = tsr__config_layer(w->config, layer);
    const tsr__weight_name *name =
        tsr__weights_ndim(layer, ours) > 0 ? tsr__weight_name_of(w, layer, ours) : NULL;
    TSR__REQUIRE(name, "model: architecture %s has no %s", w->family->name, ours);
    const tsr__parameter p = tsr__weights_parameter_of(w->config, layer, ours);
    *out = (tsr__weight){.rows = p.rows,
                         .columns = p.columns,
                         .transposed = w->transposed && layer >= 0 && p.ndim == 2,
                         .less_one = w->family->hf_norms_less_one && !w->files->gguf &&
                                     is_norm_weight(ours)};
    tsr__weight_write_name(w, layer, ours, name, text);
    place_rows(w, kind, ours, name, out);
    if (p.of_heads) {
        out->matrices = p.experts;
        out->matrix = expert;
        place_latent_rows(w, kind->latent, ours, out, text);
    } else if (p.experts > 0 && !tsr__weight_has_asterisk(w, name)) {
        out->matrices = p.experts;
        out->matrix = expert;
    }
    tsr__weight_write_expert(expert, text);
    return TSR_OK;
}
