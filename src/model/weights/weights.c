#include "model/weights/weights.h"

#include <string.h>

#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/elements.h"
#include "model/weights/names.h"
#include "parallel/internal.h"
#include "tensor/check.h"
#include "tensor/dtype.h"

static bool has_shape(const tsr_shard_param *file, int ndim, const int64_t needed[3])
{
    bool same = file->ndim == ndim;
    for (int d = 0; same && d < ndim; d++)
        same = file->shape[d] == needed[d];
    return same;
}

static tsr_status check_shape(const tsr__weights *w, const tsr__weight *place, int own_ndim)
{
    const tsr_shard_param *file = place->file;
    int64_t needed[3];
    const int ndim = tsr__weight_shape(w, place, own_ndim, needed);
    if (!has_shape(file, ndim, needed))
        return tsr__fail(TSR_ERR_INVALID, "model: tensor %s is %s; the sizes %s need %s",
                         file->name, TSR__SHAPE(file->ndim, file->shape),
                         !w->files->config_is_read ? "of the model"
                         : w->files->gguf          ? "in the metadata"
                                                   : "in config.json",
                         TSR__SHAPE(ndim, needed));
    TSR__TRY(tsr__elements_check(file));
    /* Everything that reads a vector sees it as rows of one element. */
    if (own_ndim == 1 && tsr__dtype_is_block(tsr__elements_dtype(file)))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "model: tensor %s is %s, a block format; vectors must be floats",
                         file->name, file->dtype);
    return TSR_OK;
}

tsr_status tsr__weight_find(const tsr__weights *w, int layer, const char *ours, tsr__weight *out)
{
    return tsr__weight_find_expert(w, layer, ours, 0, out);
}

tsr_status tsr__weight_find_expert(const tsr__weights *w, int layer, const char *ours,
                                   int64_t expert, tsr__weight *out)
{
    char text[TSR__WEIGHT_NAME];
    tsr__weight place;
    TSR__TRY(tsr__weight_place(w, layer, ours, expert, &place, text));
    place.file = tsr__model_files_find(w->files, text);
    if (!place.file && tsr__config_is_next(w->config, layer) && !w->files->gguf) {
        /* Experts of layers that predict further tokens may be arranged in the other way. */
        char other_text[TSR__WEIGHT_NAME];
        tsr__weights other = *w;
        tsr__weight found;
        other.experts =
            w->experts == TSR__EXPERTS_MERGED ? TSR__EXPERTS_USUAL : TSR__EXPERTS_MERGED;
        TSR__TRY(tsr__weight_place(&other, layer, ours, expert, &found, other_text));
        found.file = tsr__model_files_find(w->files, other_text);
        if (found.file)
            place = found;
    }
    if (!place.file && w->config->tied && strcmp(ours, "embedding.weight") == 0) {
        /* A file of a model with a tied head may have its only matrix under the head's name. */
        char head[TSR__WEIGHT_NAME];
        tsr__weight_write_name(w, layer, "head.weight", tsr__weight_name_of(w, layer, "head"),
                               head);
        const tsr_shard_param *found = tsr__model_files_find(w->files, head);
        int64_t needed[3];
        const int ndim = tsr__weight_shape(w, &place, 2, needed);
        if (found && has_shape(found, ndim, needed))
            place.file = found;
    }
    if (place.file && place.matrices > 0 && w->family->hf_mxfp4 && !w->files->gguf &&
        tsr__weights_ndim(layer, ours) == 2 &&
        !tsr__dtype_is_block(tsr__elements_dtype(place.file))) {
        tsr__weight other = place;
        int64_t needed[3];
        other.transposed = true;
        if (has_shape(place.file, tsr__weight_shape(w, &other, 2, needed), needed))
            place = other;
    }
    if (!place.file)
        return tsr__fail(TSR_ERR_NOT_FOUND, "model: %s has no tensor %s", w->files->weights, text);
    TSR__TRY(check_shape(w, &place, tsr__weights_ndim(layer, ours)));
    *out = place;
    return TSR_OK;
}

tsr_status tsr__weight_of(const tsr__weights *w, int layer, const char *ours,
                          const tsr_parameter *p, tsr__weight *out, tsr__weight_part *part)
{
    TSR__TRY(tsr__weight_find(w, layer, ours, out));
    *part = (tsr__weight_part){.rows = out->rows, .columns = out->columns};
    /* the dimension of one expert's matrix; −1 with experts: the experts are divided */
    int dim = p->shard_dim;
    if (tsr__weights_parameter_of(w->config, layer, ours).experts > 0) {
        part->of_experts = true;
        part->experts = p->global_shape[0];
        dim = p->shard_dim < 0 ? 2 : p->shard_dim - 1;
    }
    const bool in_team =
        part->of_experts && tsr__parameter_in_team(p, &part->first_expert, &part->experts);
    if (part->of_experts && dim < 0 && !in_team) {
        part->first_expert = p->offset;
        part->experts = p->length;
    } else if (dim == 0) {
        part->first_row = p->offset;
        part->rows = p->length;
    } else if (dim == 1) {
        part->first_column = p->offset;
        part->columns = p->length;
    }
    return TSR_OK;
}

int64_t tsr__weight_part_matrices(const tsr__weight_part *part)
{
    return part->of_experts ? part->experts : 1;
}

uint64_t tsr__weight_part_elements(const tsr__weight_part *part)
{
    return (uint64_t)tsr__weight_part_matrices(part) * (uint64_t)part->rows *
           (uint64_t)part->columns;
}

/* The arrangement of files ------------------------------------------------------------------- */

/* Chooses the prefix of Hugging Face's names: none, the family's, or one of a model for images and
 * text. The last norm shows it, because every file has one. */
static void find_prefix(tsr__weights *w)
{
    const char *const prefixes[] = {"", w->family->hf_prefix, "language_model.model.",
                                    "model.language_model."};
    char text[TSR__WEIGHT_NAME];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !w->files->gguf; i++) {
        w->prefix = prefixes[i];
        tsr__weight_write_name(w, -1, "norm.weight", tsr__weight_name_of(w, -1, "norm"), text);
        if (tsr__model_files_find(w->files, text))
            return;
    }
    w->prefix = w->family->hf_prefix; /* the prefix that error texts name */
}

/* Finds out whether matrices are [in, out]. Files that were not made by Transformers may have them
 * as [out, in]; a matrix that is not square shows which. */
static void find_arrangement(tsr__weights *w)
{
    char text[TSR__WEIGHT_NAME];
    w->transposed = w->family->hf_transposed && !w->files->gguf;
    if (!w->transposed)
        return;
    tsr__weight_write_name(w, 0, "mlp.up.weight", tsr__weight_name_of(w, 0, "mlp.up"), text);
    const tsr_shard_param *up = tsr__model_files_find(w->files, text);
    const int64_t hidden = tsr__config_layer(w->config, 0)->hidden, width = w->config->width;
    if (up && up->ndim == 2 && hidden != width && up->shape[0] == hidden && up->shape[1] == width)
        w->transposed = false;
}

/* Returns whether the files have a parameter of the first expert of a layer where an arrangement
 * has it. */
static bool has_arrangement(tsr__weights *w, tsr__expert_tensors experts, int layer,
                            const char *ours)
{
    char text[TSR__WEIGHT_NAME];
    const tsr__weight_name *name = tsr__weight_name_of(w, layer, ours);
    if (!name)
        return false;
    w->experts = experts;
    tsr__weight_write_name(w, layer, ours, name, text);
    tsr__weight_write_expert(0, text);
    w->experts = TSR__EXPERTS_USUAL;
    return tsr__model_files_find(w->files, text) != NULL;
}

/* Finds out how the files arrange experts. What has neither arrangement lacks the tensors that the
 * family's names say. */
static void find_experts(tsr__weights *w)
{
    static const char down[] = "mlp.experts.down.weight", gate[] = "mlp.experts.gate.weight";
    const int layer = tsr__config_first_experts(w->config);
    const tsr__weight_name *name = tsr__weight_name_of(w, layer, down);
    if (layer == w->config->layers || !name)
        return;
    if (!w->files->gguf) {
        if (strchr(name->hf, '*') && has_arrangement(w, TSR__EXPERTS_MERGED, layer, down))
            w->experts = TSR__EXPERTS_MERGED;
    } else if (has_arrangement(w, TSR__EXPERTS_APART, layer, down)) {
        w->experts = TSR__EXPERTS_APART;
    } else if (has_arrangement(w, TSR__EXPERTS_GATE_UP, layer, gate)) {
        w->experts = TSR__EXPERTS_GATE_UP;
    }
}

/* Finds out whether a GGUF file has q, k, v and z of delta nets in one tensor. */
static void find_delta_nets(tsr__weights *w)
{
    char text[TSR__WEIGHT_NAME];
    int layer;
    if (!w->files->gguf || !tsr__config_delta_net(w->config, &layer))
        return;
    w->joined_delta_nets = true;
    tsr__weight_write_name(w, layer, "delta_net.q.weight",
                           tsr__weight_name_of(w, layer, "delta_net.q"), text);
    w->joined_delta_nets = tsr__model_files_find(w->files, text) != NULL;
}

/* Calls `visit` for each parameter of the model, of experts for that of each expert. */
static tsr_status each(const tsr__weights *w,
                       tsr_status (*visit)(void *user, const tsr__weights *w, int layer,
                                           const char *ours, int64_t expert),
                       void *user)
{
    tsr__parameter p;
    for (int layer = -1; layer < w->config->layers + w->config->next_token_layers; layer++)
        for (int i = 0; tsr__weights_parameter(w->config, layer, i, &p); i++)
            for (int64_t e = 0; e < (p.experts > 0 ? p.experts : 1); e++)
                TSR__TRY(visit(user, w, layer, p.ours, e));
    return TSR_OK;
}

static tsr_status check_one(void *user, const tsr__weights *w, int layer, const char *ours,
                            int64_t expert)
{
    tsr__weight place;
    (void)user;
    return tsr__weight_find_expert(w, layer, ours, expert, &place);
}

typedef struct expectation {
    tsr_status (*add)(void *user, const char *name, int ndim, const int64_t *shape);
    void *user;
} expectation;

static tsr_status expect_one(void *user, const tsr__weights *w, int layer, const char *ours,
                             int64_t expert)
{
    const expectation *to = user;
    char text[TSR__WEIGHT_NAME];
    tsr__weight place;
    int64_t shape[3];
    TSR__TRY(tsr__weight_place(w, layer, ours, expert, &place, text));
    /* Other parameters, such as k and v, are in a tensor that has been added. */
    if (place.first_row > 0 || place.matrix > 0)
        return TSR_OK;
    const int ndim = tsr__weight_shape(w, &place, tsr__weights_ndim(layer, ours), shape);
    return to->add(to->user, text, ndim, shape);
}

tsr_status tsr__weights_expected(const tsr__model_files *files, const tsr_model_config *config,
                                 tsr_status (*add)(void *user, const char *name, int ndim,
                                                   const int64_t *shape),
                                 void *user)
{
    const tsr__family *a = tsr__family_by_name(config->architecture);
    const tsr__weights w = {.files = files,
                            .config = config,
                            .family = a,
                            .prefix = a->hf_prefix,
                            .transposed = a->hf_transposed && !files->gguf,
                            .experts = tsr__experts_of_family(a, files->gguf)};
    return each(&w, expect_one, &(expectation){add, user});
}

tsr_status tsr__weights_init(const tsr__model_files *files, const tsr_model_config *config,
                             tsr__weights *out)
{
    *out = (tsr__weights){
        .files = files,
        .config = config,
        .family = tsr__family_by_name(config->architecture),
    };
    find_prefix(out);
    find_arrangement(out);
    out->joint_latents = files->gguf && tsr__model_files_find(files, "blk.0.attn_kv_b.weight");
    find_experts(out);
    find_delta_nets(out);
    return each(out, check_one, NULL);
}
