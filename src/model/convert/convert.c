/* Converting models: which tensors and files the destination has, and the order in which they are
 * written. The header is written first and read back, so that a configuration that the destination
 * cannot express is refused before any weight is converted. */
#include "tessera/convert.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "model/convert/config.h"
#include "model/convert/mixture.h"
#include "model/weights/elements.h"
#include "tessera/quant.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_read.h"

/* Tensors -------------------------------------------------------------------------------------- */

/* Chooses the dtype of a tensor, and notes if it is not the one that was asked for. */
static tsr_dtype choose_dtype(tsr__conversion *c, const tsr__converted *t, int64_t columns)
{
    const bool is_float = tsr_quant_format_of(t->from_dtype) == NULL;
    const tsr_dtype kept = c->gguf || is_float ? t->from_dtype : TSR_F32;
    if (!t->is_matrix)
        return c->gguf ? TSR_F32 : kept;
    const tsr_dtype wanted = c->params->dtype;
    const tsr_quant_format *format = tsr_quant_format_of(wanted);
    if (wanted == 0 || wanted == kept)
        return kept;
    if (!format || columns % format->block_count == 0)
        return wanted;
    if (c->stats.kept++ == 0)
        tsr__conversion_note(c,
                             "%s stays %s, because its rows of %" PRId64
                             " elements are not whole blocks of %d, as %s needs",
                             t->name, tsr_dtype_name(kept), columns, format->block_count,
                             format->name);
    return kept;
}

static tsr_status add_tensor(tsr__conversion *c, const tsr__converted *tensor)
{
    void *tensors = c->tensors;
    TSR__TRY(tsr__grow(&tensors, &c->capacity, c->count + 1, sizeof *c->tensors));
    c->tensors = tensors;
    c->tensors[c->count++] = *tensor;
    return TSR_OK;
}

/* Gives the sources of a tensor of experts: of expert `only`, or of all if that is negative. */
static tsr_status find_sources(tsr__conversion *c, int layer, const tsr__parameter *p, int64_t only,
                               tsr__converted_experts *x)
{
    char up[64] = "mlp.experts.up";
    const char *const ours[] = {p->ours, p->of_heads ? "attention.v_b.weight"
                                                     : strcat(up, strrchr(p->ours, '.'))};
    const int64_t first = only < 0 ? 0 : only;
    x->sources = tsr__calloc((size_t)(x->count * x->parts), sizeof *x->sources);
    if (!x->sources)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < x->count * x->parts; i++)
        TSR__TRY(tsr__weight_find_expert(c->source, layer, ours[i % x->parts], first + i / x->parts,
                                         &x->sources[i]));
    return TSR_OK;
}

/* Describes the tensor of blocks and that of scales which hold a matrix in MXFP4. */
static tsr_status add_pair(tsr__conversion *c, tsr__converted *t)
{
    tsr__converted blocks = *t, scales = *t;
    scales.shape[t->ndim - 1] = blocks.shape[t->ndim - 1] = t->columns / 32;
    blocks.shape[blocks.ndim++] = 16;
    blocks.dtype = scales.dtype = TSR_U8;
    blocks.form = TSR__CONVERTED_MXFP4_BLOCKS;
    scales.form = TSR__CONVERTED_MXFP4_SCALES;
    scales.experts.sources = NULL; /* `blocks` has them */
    const bool fits =
        snprintf(blocks.name, sizeof blocks.name, "%s_blocks", t->name) < TSR__WEIGHT_NAME &&
        snprintf(scales.name, sizeof scales.name, "%s_scales", t->name) < TSR__WEIGHT_NAME;
    TSR__REQUIRE(fits, "convert: tensor %s has too long a name", t->name);
    TSR__TRY(add_tensor(c, &blocks));
    t->experts.sources = NULL; /* they belong to the list now */
    return add_tensor(c, &scales);
}

/* Returns whether all sources are in MXFP4, so that a folder can have them as they are. */
static bool all_mxfp4(const tsr__converted_experts *x)
{
    for (int64_t i = 0; i < x->count * x->parts; i++)
        if (tsr__elements_dtype(x->sources[i].file) != TSR_MXFP4)
            return false;
    return true;
}

/* Adds the tensor of the destination that holds the matrix of one expert or, if that has a
 * dimension for experts, those of all. */
static tsr_status plan_expert(tsr__conversion *c, int layer, const tsr__parameter *p,
                              int64_t expert)
{
    tsr__converted t = {.layer = layer};
    tsr__weight to;
    TSR__TRY(tsr__weight_place(&c->target, layer, p->ours, expert, &to, t.name));
    if (to.first_row > 0 || (to.matrices > 0 && expert > 0))
        return TSR_OK; /* another one's tensor holds it */
    tsr__converted_experts *x = &t.experts;
    *x = (tsr__converted_experts){.count = to.matrices > 0 ? to.matrices : 1,
                                  .parts = to.all_rows / to.rows,
                                  .rows = to.rows,
                                  .alternates = to.row_step > 1};
    if (to.flat) { /* k_b with v_b: the latter is not in the first row */
        x->latents = true;
        x->parts = 2;
        x->rows = to.columns;
        x->both = to.all_columns;
    }
    tsr_status status = find_sources(c, layer, p, to.matrices > 0 ? -1 : expert, x);
    if (status == TSR_OK) {
        t.from = x->sources[0].file;
        t.from_dtype = tsr__elements_dtype(t.from);
        t.rows = x->count * to.all_rows;
        t.columns = to.columns;
        if (to.matrices > 0)
            t.shape[t.ndim++] = to.matrices;
        t.shape[t.ndim++] = to.all_rows;
        if (p->ndim == 2)
            t.shape[t.ndim++] = to.columns;
        if (to.flat) {
            t.ndim = 2;
            t.rows = t.shape[0] = x->count * x->both;
            t.columns = t.shape[1] = to.all_rows;
        }
        t.is_matrix = p->ndim == 2;
        t.dtype = choose_dtype(c, &t, t.columns);
        const bool special = c->target.family->hf_mxfp4 && !c->gguf && p->ndim == 2;
        if (special && all_mxfp4(x) && c->params->dtype == 0)
            status = add_pair(c, &t);
        else {
            if (special) { /* floats are [experts, in, out] there */
                t.transposed = true;
                t.rows = x->count * to.columns;
                t.columns = t.shape[2] = to.all_rows;
                t.shape[1] = to.columns;
            }
            status = add_tensor(c, &t);
            x->sources = status == TSR_OK ? NULL : x->sources;
        }
    }
    tsr__free(x->sources);
    return status;
}

/* Gives the weights that are in the tensor `name` of the destination. */
static tsr_status find_weights(tsr__conversion *c, int layer, const char *name,
                               tsr__converted_weights *out)
{
    tsr__parameter p;
    int most = 0;
    while (tsr__weights_parameter(c->config, layer, most, &p))
        most++;
    out->items = tsr__calloc((size_t)most, sizeof *out->items);
    if (!out->items)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; tsr__weights_parameter(c->config, layer, i, &p); i++) {
        char other[TSR__WEIGHT_NAME];
        tsr__weight to;
        TSR__TRY(tsr__weight_place(&c->target, layer, p.ours, 0, &to, other));
        if (strcmp(other, name) != 0)
            continue;
        tsr__converted_weight *added = &out->items[out->count];
        added->to = to;
        TSR__TRY(tsr__weight_find(c->source, layer, p.ours, &added->from));
        out->count++;
    }
    return TSR_OK;
}

/* Adds the tensor of the destination that holds a parameter of a delta net or of a short
 * convolution. */
static tsr_status plan_assembled(tsr__conversion *c, int layer, const tsr__parameter *p)
{
    tsr__converted t = {.layer = layer};
    tsr__weight to;
    TSR__TRY(tsr__weight_place(&c->target, layer, p->ours, 0, &to, t.name));
    if (to.first_row > 0)
        return TSR_OK; /* another one's tensor holds it */
    tsr_status status = find_weights(c, layer, t.name, &t.weights);
    if (status == TSR_OK) {
        t.from = t.weights.items[0].from.file;
        t.from_dtype = tsr__elements_dtype(t.from);
        t.rows = to.all_rows;
        t.columns = to.columns;
        t.shape[t.ndim++] = to.all_rows;
        if (to.has_middle)
            t.shape[t.ndim++] = 1;
        if (p->ndim == 2)
            t.shape[t.ndim++] = to.columns;
        t.is_matrix = p->ndim == 2 && !p->is_f32;
        t.dtype = choose_dtype(c, &t, t.columns);
        status = add_tensor(c, &t);
    }
    if (status != TSR_OK)
        tsr__free(t.weights.items);
    return status;
}

/* Adds the destination's tensor that holds this parameter to the list, unless the list has it
 * already, as when one tensor holds q, k and v. */
static tsr_status plan_parameter(tsr__conversion *c, int layer, const tsr__parameter *p)
{
    tsr__converted t = {.ndim = p->ndim, .layer = layer};
    tsr__weight from, to;
    for (int64_t e = 0; e < p->experts; e++)
        TSR__TRY(plan_expert(c, layer, p, e));
    if (p->experts > 0)
        return TSR_OK;
    if (strncmp(p->ours, "delta_net.", 10) == 0 || strncmp(p->ours, "short_conv.", 11) == 0)
        return plan_assembled(c, layer, p);
    TSR__TRY(tsr__weight_find(c->source, layer, p->ours, &from));
    TSR__TRY(tsr__weight_place(&c->target, layer, p->ours, 0, &to, t.name));
    if (to.first_row > 0)
        return TSR_OK;
    t.from = from.file;
    t.from_dtype = tsr__elements_dtype(from.file);
    const bool wide = from.transposed && to.transposed; /* both files store the transposed matrix */
    t.rows = to.transposed ? to.columns : to.all_rows;
    t.columns = to.transposed ? to.all_rows : to.columns;
    t.transposed = !wide && from.transposed != to.transposed;
    if (from.interleaved_head != to.interleaved_head) {
        t.split_head = from.interleaved_head;
        t.join_head = to.interleaved_head;
    }
    t.shift = (float)(from.less_one - to.less_one);
    t.shape[0] = t.rows;
    t.shape[1] = t.columns;
    if (c->gguf && p->ndim == 2 && t.rows == 1) { /* GGUF files have a matrix of one row as a row */
        t.ndim = 1;
        t.shape[0] = t.columns;
    }
    t.is_matrix = p->ndim == 2 && !p->is_f32 && strcmp(p->ours, "positions.weight") != 0;
    t.dtype = choose_dtype(c, &t, t.columns);
    return add_tensor(c, &t);
}

static tsr_status plan_layer(tsr__conversion *c, int layer)
{
    tsr__parameter p;
    for (int i = 0; tsr__weights_parameter(c->config, layer, i, &p); i++)
        TSR__TRY(plan_parameter(c, layer, &p));
    return TSR_OK;
}

static tsr_status plan_tensors(tsr__conversion *c)
{
    TSR__TRY(plan_layer(c, -1));
    for (int layer = 0; layer < c->config->layers + c->config->next_token_layers; layer++)
        TSR__TRY(plan_layer(c, layer));
    if (c->mixture)
        tsr__mixture_choose(c);
    else if (c->stats.kept > 1)
        tsr__conversion_note(c, "the same is true of %" PRIu64 " more tensors", c->stats.kept - 1);
    c->stats.tensors = c->count;
    return TSR_OK;
}

/* The tokenizer -------------------------------------------------------------------------------- */

static bool exists(const char *folder, const char *name)
{
    struct stat info;
    char *path = tsr__path_join(folder, name);
    const bool there = path && stat(path, &info) == 0;
    tsr__free(path);
    return there;
}

/* Replaces the tokenizer of tokenizer.json, which lacks scores, by that of SentencePiece's own file
 * beside it. */
static tsr_status open_scores(tsr__conversion *c)
{
    tsr_tokenizer *scores = NULL;
    char *path = tsr__path_join(c->files->folder, "tokenizer.model");
    const tsr_status status =
        path ? tsr__tokenizer_open_scores(path, c->tokenizer, &scores) : TSR_ERR_NO_MEMORY;
    tsr__free(path);
    TSR__TRY(status);
    tsr_tokenizer_close(&c->tokenizer);
    c->tokenizer = scores;
    return TSR_OK;
}

static tsr_status open_tokenizer(tsr__conversion *c)
{
    if (c->params->weights_only)
        return TSR_OK;
    const tsr_status status = tsr_model_file_open_tokenizer(c->file, &c->tokenizer);
    if (status == TSR_ERR_NOT_FOUND) {
        tsr__conversion_note(c, "the source has no tokenizer, and so the destination has none");
        return TSR_OK;
    }
    TSR__TRY(status);
    const bool has_scores = exists(c->files->folder, "tokenizer.model");
    c->copies_tokenizer =
        !c->files->gguf && !c->gguf && (has_scores || exists(c->files->folder, "tokenizer.json"));
    return c->tokenizer->kind == TSR_TOKENIZER_BPE && has_scores && !c->copies_tokenizer
               ? open_scores(c)
               : TSR_OK;
}

/* Steps ---------------------------------------------------------------------------------------- */

static tsr_status check_type(const tsr__conversion *c)
{
    const tsr_dtype type = c->params->dtype;
    const tsr_quant_format *format = tsr_quant_format_of(type);
    if (c->mixture && !c->gguf)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "convert: a folder of Hugging Face cannot have weights of the mixture %s; "
                         "f32, f16 and bf16 are possible",
                         c->params->mixture);
    const bool is_float = type == TSR_F32 || type == TSR_F16 || type == TSR_BF16;
    if (type == 0 || is_float)
        return TSR_OK;
    if (!c->gguf)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "convert: a folder of Hugging Face cannot have weights of type %s; f32, "
                         "f16 and bf16 are possible",
                         tsr_dtype_name(type));
    if (!format || !format->quantizes)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "convert: weights cannot be written as %s",
                         tsr_dtype_name(type));
    return TSR_OK;
}

static bool is_same(const char *path, const struct stat *destination)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_dev == destination->st_dev &&
           info.st_ino == destination->st_ino;
}

/* Sets *out to whether the destination is the source, a file of the source, or the folder that
 * contains the source. */
static tsr_status is_source(const tsr__conversion *c, const char *destination, bool *out)
{
    const tsr__params *params = &c->files->list->params;
    const char *folder = *c->files->folder ? c->files->folder : ".", *last = NULL;
    struct stat info;
    *out = false;
    if (stat(destination, &info) != 0)
        return TSR_OK;
    *out = is_same(c->files->weights, &info) || is_same(folder, &info);
    for (size_t i = 0; i < params->count && !*out; i++) {
        const tsr_shard_param *param = &params->items[i];
        if (!param->file || (last && strcmp(last, param->file) == 0))
            continue;
        last = param->file;
        char *path = tsr__model_files_path(c->files, param);
        if (!path)
            return TSR_ERR_NO_MEMORY;
        *out = is_same(path, &info);
        tsr__free(path);
    }
    return TSR_OK;
}

static tsr_status plan_target(tsr__conversion *c, const char *destination)
{
    bool same;
    if (c->files->random)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "convert: a random model cannot be converted");
    TSR__TRY(tsr__model_file_weights(c->file, &c->source));
    TSR__TRY(is_source(c, destination, &same));
    TSR__REQUIRE(!same, "convert: %s is the source", destination);
    c->target_files.gguf = c->gguf;
    c->target = (tsr__weights){.files = &c->target_files,
                               .config = c->config,
                               .family = c->source->family,
                               .prefix = c->source->family->hf_prefix,
                               .transposed = c->source->family->hf_transposed && !c->gguf,
                               .experts = tsr__experts_of_family(c->source->family, c->gguf)};
    TSR__TRY(open_tokenizer(c));
    TSR__TRY(plan_tensors(c));
    return tsr__addition_plan(c);
}

/* Tells the caller which tokens end a text in the source but not in the destination, except those
 * that readers know by their spelling. */
static void note_ends(const tsr__conversion *c, const tsr_model_config *written)
{
    for (int i = 0; i < c->config->end_count; i++) {
        const int32_t id = c->config->end[i];
        bool there = tsr_tokenizer_is_end(c->tokenizer, id);
        for (int j = 0; j < written->end_count; j++)
            there = there || written->end[j] == id;
        if (!there)
            tsr__conversion_note(c,
                                 "GGUF files can name 3 tokens that end a text: token %d is "
                                 "left out",
                                 (int)id);
    }
}

/* Reads the configuration and the list of tensors that have been written. */
static tsr_status check_written(const tsr__conversion *c)
{
    tsr_model_file *file = NULL;
    const tsr__weights *weights;
    TSR__TRY(tsr_model_file_open(c->output.partial, &file));
    const tsr_model_config *written = tsr_model_file_config(file);
    tsr_status status =
        tsr__config_compare(c->config, written, c->gguf ? "a GGUF file" : "config.json");
    if (status == TSR_OK)
        status = tsr__model_file_weights(file, &weights);
    if (status == TSR_OK)
        note_ends(c, written);
    tsr_model_file_close(&file);
    return status;
}

static tsr_status convert_weights(tsr__conversion *c)
{
    tsr__tensor_copier copier;
    tsr_status status = TSR_OK;
    tsr__tensor_copier_init(c->files, &c->output, &copier);
    copier.progress = c->params->progress;
    copier.user = c->params->user;
    for (size_t i = 0; i < c->count; i++)
        copier.total_bytes += c->tensors[i].size_bytes;
    for (size_t i = 0; i < c->count && status == TSR_OK; i++)
        status = (c->tensors[i].experts.count > 0   ? tsr__experts_convert
                  : c->tensors[i].weights.count > 0 ? tsr__weights_convert
                                                    : tsr__tensor_convert)(&copier, &c->tensors[i]);
    c->stats.read_bytes = copier.source.read_bytes;
    tsr__tensor_copier_finish(&copier);
    return status;
}

static tsr_status convert(tsr__conversion *c, const char *destination)
{
    TSR__TRY(tsr__mixture_find(c->params, &c->mixture));
    TSR__TRY(check_type(c));
    TSR__TRY(plan_target(c, destination));
    TSR__TRY(tsr__output_begin(destination, !c->gguf, c->params->replace, &c->output));
    TSR__TRY(c->gguf ? tsr__conversion_begin_gguf(c) : tsr__conversion_begin_folder(c));
    TSR__TRY(check_written(c));
    TSR__TRY(convert_weights(c));
    c->stats.written_bytes = c->output.written_bytes;
    return tsr__output_commit(&c->output);
}

/* Returns the extension of a path's last name, such as ".gguf", or "" if there is none. Only
 * letters and digits after a dot, of which the first is a letter, are one: "Qwen2.5-0.5B" and
 * "Llama-3.1" have none. */
static const char *extension_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
#ifdef _WIN32
    const char *other = strrchr(name, '\\');
    name = other ? other + 1 : name;
#endif
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name || !isalpha((unsigned char)dot[1]))
        return "";
    for (const char *c = dot + 1; *c; c++)
        if (!isalnum((unsigned char)*c))
            return "";
    return dot;
}

/* Sets *is_gguf to whether the destination is a GGUF file. Refuses other extensions, unless the
 * destination is a folder that exists. */
static tsr_status check_name(const char *destination, bool *is_gguf)
{
    struct stat info;
    const char *extension = extension_of(destination);
    *is_gguf = strcmp(extension, ".gguf") == 0;
    TSR__REQUIRE(!*extension || *is_gguf ||
                     (stat(destination, &info) == 0 && S_ISDIR(info.st_mode)),
                 "convert: the destination %s has the extension %s; files have .gguf, and folders "
                 "no extension or a / at the end",
                 destination, extension);
    return TSR_OK;
}

tsr_status tsr_model_convert(const tsr_model_file *source, const char *destination,
                             const tsr_convert_params *params, tsr_convert_stats *out)
{
    TSR__REQUIRE(source && destination, "convert: %s is NULL", source ? "destination" : "source");
    TSR__TAKE(tsr_convert_params, params);
    if (out)
        TSR__TRY(tsr__struct_check_out("tsr_convert_stats", out));
    bool is_gguf;
    TSR__TRY(check_name(destination, &is_gguf));
    tsr__conversion *c = tsr__calloc(1, sizeof *c);
    if (!c)
        return TSR_ERR_NO_MEMORY;
    c->params = params;
    c->file = source;
    c->files = &source->files;
    c->config = &source->config->public;
    c->gguf = is_gguf;
    c->output.descriptor = -1;
    const tsr_status status = convert(c, destination);
    if (status == TSR_OK && out)
        tsr__struct_write(sizeof c->stats, &c->stats, out);
    tsr__output_finish(&c->output);
    tsr_tokenizer_close(&c->tokenizer);
    tsr__addition_finish(c);
    for (size_t i = 0; i < c->count; i++) {
        tsr__free(c->tensors[i].experts.sources);
        tsr__free(c->tensors[i].weights.items);
    }
    tsr__free(c->tensors);
    tsr__free(c);
    return status;
}
