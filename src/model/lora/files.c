#include "model/lora/files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "model/weights/elements.h"
#include "tensor/check.h"

#define MAX_RANK 65536

/* Opening -------------------------------------------------------------------------------------- */

static tsr_status read_metadata(tsr__adapter_file *a, tsr__file *file)
{
    enum { TYPE, KIND, ARCHITECTURE, ALPHA, COUNT };
    char text[TSR_SHARD_MAX_NAME + 1];
    tsr__gguf_value values[COUNT] = {[TYPE] = {.key = "general.type"},
                                     [KIND] = {.key = "adapter.type"},
                                     [ARCHITECTURE] = {.key = "general.architecture"},
                                     [ALPHA] = {.key = "adapter.lora.alpha"}};
    TSR__TRY(tsr__gguf_look_up(file, &a->files.list->keys, values, COUNT));
    for (int i = 0; i < COUNT; i++)
        TSR__REQUIRE(values[i].found, "lora: %s is no adapter: it has no %s", a->files.weights,
                     values[i].key);
    TSR__TRY(tsr__gguf_name_of(file, &values[TYPE], text));
    TSR__REQUIRE(strcmp(text, "adapter") == 0, "lora: %s is no adapter: its general.type is '%s'",
                 a->files.weights, text);
    TSR__TRY(tsr__gguf_name_of(file, &values[KIND], text));
    if (strcmp(text, "lora") != 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "lora: adapter.type is '%s'; lora is supported",
                         text);
    TSR__TRY(tsr__gguf_name_of(file, &values[ARCHITECTURE], a->architecture));
    TSR__TRY(tsr__gguf_real(file, &values[ALPHA], &a->config.alpha));
    TSR__REQUIRE(a->config.alpha >= 0 && a->config.alpha <= TSR__LORA_MAX_ALPHA,
                 "lora: adapter.lora.alpha is %g", a->config.alpha);
    return TSR_OK;
}

static tsr_status open_gguf(tsr__adapter_file *a, const char *path)
{
    tsr__file file;
    TSR__TRY(tsr__model_files_open_weights(path, &a->files));
    TSR__REQUIRE(a->files.gguf, "lora: %s is neither a PEFT folder nor a GGUF file", path);
    TSR__TRY(tsr__file_open(a->files.weights, &file));
    file.what = "gguf";
    const tsr_status status = read_metadata(a, &file);
    tsr__file_close(&file);
    return status;
}

static tsr_status open_peft(tsr__adapter_file *a, const char *folder)
{
    char *config = tsr__path_join(folder, "/adapter_config.json"),
         *weights = tsr__path_join(folder, "/adapter_model.safetensors");
    tsr_status status = config && weights ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__lora_config_read(config, &a->config);
    if (status == TSR_OK)
        status = tsr__model_files_open_weights(weights, &a->files);
    tsr__free(config);
    tsr__free(weights);
    return status;
}

tsr_status tsr__adapter_file_open(const char *path, tsr__adapter_file *out)
{
    struct stat info;
    *out = (tsr__adapter_file){0};
    tsr__weight_source_init("lora", &out->files, &out->source);
    TSR__TRY(stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? open_peft(out, path)
                                                             : open_gguf(out, path));
    const uint64_t count = tsr_shard_list_param_count(out->files.list);
    TSR__REQUIRE(count > 0, "lora: %s has no tensors", path);
    out->is_used = tsr__calloc((size_t)count, sizeof *out->is_used);
    return out->is_used ? TSR_OK : TSR_ERR_NO_MEMORY;
}

void tsr__adapter_file_finish(tsr__adapter_file *a)
{
    tsr__weight_source_finish(&a->source);
    tsr__lora_config_finish(&a->config);
    tsr__model_files_finish(&a->files);
    tsr__free(a->is_used);
}

/* Weights -------------------------------------------------------------------------------------- */

/* Finds A ('a') or B of a weight whose tensor in a model's files has this name. */
static const tsr_shard_param *find_half(tsr__adapter_file *a, const char *tensor, char which,
                                        char name[TSR__LORA_NAME])
{
    const char *ending = strrchr(tensor, '.');
    const int stem = ending ? (int)(ending - tensor) : (int)strlen(tensor);
    if (a->files.gguf)
        snprintf(name, TSR__LORA_NAME, "%s.lora_%c", tensor, which);
    else
        snprintf(name, TSR__LORA_NAME, "base_model.model.%.*s.lora_%c.weight", stem, tensor,
                 which - 'a' + 'A');
    const tsr_shard_param *found = tsr__model_files_find(&a->files, name);
    if (found)
        a->is_used[found - tsr_shard_list_param(a->files.list, 0)] = true;
    return found;
}

/* Finds the magnitudes of a weight, whose name is with or without ".weight" at its end. */
static tsr_status find_magnitudes(tsr__adapter_file *a, const char *tensor, int64_t rows,
                                  const tsr_shard_param **out)
{
    static const char *const endings[] = {"", ".weight"};
    const char *ending = strrchr(tensor, '.');
    const int stem = ending ? (int)(ending - tensor) : (int)strlen(tensor);
    char name[TSR__LORA_NAME];
    *out = NULL;
    for (int i = 0; a->config.dora && !*out && i < 2; i++) {
        snprintf(name, sizeof name, "base_model.model.%.*s.lora_magnitude_vector%s", stem, tensor,
                 endings[i]);
        *out = tsr__model_files_find(&a->files, name);
    }
    if (!a->config.dora)
        return TSR_OK;
    if (!*out)
        return tsr__fail(TSR_ERR_NOT_FOUND,
                         "lora: adapter_config.json says use_dora, but there is no tensor "
                         "base_model.model.%.*s.lora_magnitude_vector",
                         stem, tensor);
    a->is_used[*out - tsr_shard_list_param(a->files.list, 0)] = true;
    TSR__REQUIRE((*out)->ndim == 1 && (*out)->shape[0] == rows,
                 "lora: tensor %s is %s; the model needs %s", (*out)->name,
                 TSR__SHAPE((*out)->ndim, (*out)->shape), TSR__SHAPE(1, &rows));
    return tsr__elements_check(*out);
}

/* Checks that a tensor is [rows, columns] or, with `matrices`, [matrices, rows, columns]. */
static tsr_status check_half(const tsr_shard_param *half, int64_t matrices, int64_t rows,
                             int64_t columns)
{
    const int64_t needed[3] = {matrices, rows, columns};
    const int first = matrices > 0 ? 0 : 1, ndim = 3 - first;
    bool same = half->ndim == ndim;
    for (int d = 0; same && d < ndim; d++)
        same = half->shape[d] == needed[first + d];
    TSR__REQUIRE(same, "lora: tensor %s is %s; the model needs %s", half->name,
                 TSR__SHAPE(half->ndim, half->shape), TSR__SHAPE(ndim, needed + first));
    return tsr__elements_check(half);
}

/* Checks rank and alpha, and computes the scale. `module` is the weight's name for PEFT. */
static tsr_status set_scale(const tsr__adapter_file *a, const char *module, tsr__adapter_module *m)
{
    const tsr__lora_config *config = &a->config;
    const double rank = (double)m->rank;
    if (a->files.gguf) { /* as llama.cpp: without alpha, the scale is 1 */
        m->alpha = config->alpha > 0 ? config->alpha : rank;
        m->scale = m->alpha / rank;
        return TSR_OK;
    }
    const double wanted =
        tsr__lora_pattern_value(config->ranks, config->rank_count, module, (double)config->rank);
    TSR__REQUIRE(rank == wanted,
                 "lora: tensor %s has rank %" PRId64 "; adapter_config.json says %g", m->a->name,
                 m->rank, wanted);
    m->alpha = tsr__lora_pattern_value(config->alphas, config->alpha_count, module, config->alpha);
    m->scale = m->alpha / (config->rank_stabilised ? sqrt(rank) : rank);
    return TSR_OK;
}

/* Gives the place of a weight in a model's files of the adapter's format. Returns false for a
 * parameter that has no adapter. */
static bool find_place(const tsr__adapter_file *a, const tsr_model_config *config, int layer,
                       const tsr__parameter *p, int64_t expert, tsr__weight *place,
                       char tensor[TSR__WEIGHT_NAME])
{
    const tsr__family *family = tsr__family_by_name(config->architecture);
    const tsr__model_files files = {.gguf = a->files.gguf};
    const tsr__weights weights = {
        .files = &files, .config = config, .family = family, .prefix = family->hf_prefix};
    return p->ndim == 2 && strcmp(p->ours, "embedding.weight") != 0 &&
           strcmp(p->ours, "positions.weight") != 0 &&
           tsr__weight_place(&weights, layer, p->ours, expert, place, tensor) == TSR_OK &&
           (place->matrices == 0 || a->files.gguf || p->of_heads);
}

tsr_status tsr__adapter_file_find(tsr__adapter_file *a, const tsr_model_config *config, int layer,
                                  const tsr__parameter *given, int64_t expert,
                                  tsr__adapter_module *out)
{
    tsr__parameter own = *given, *const p = &own;
    char tensor[TSR__WEIGHT_NAME], names[2][TSR__LORA_NAME];
    tsr__weight place;
    *out = (tsr__adapter_module){0};
    const bool refused = a->files.gguf && p->of_heads && p->experts == 0;
    if (!a->files.gguf)
        tsr__adapter_as_linear(p);
    if (!find_place(a, config, layer, p, expert, &place, tensor))
        return TSR_OK;
    if (!a->files.gguf)
        tsr__adapter_place_heads(config, layer, p->ours, &place);
    const tsr_shard_param *half_a = find_half(a, tensor, 'a', names[0]),
                          *half_b = find_half(a, tensor, 'b', names[1]);
    if (!half_a && !half_b)
        return TSR_OK;
    if (!half_a || !half_b)
        return tsr__fail(TSR_ERR_NOT_FOUND, "lora: the file has %s, but not its other half, %s",
                         names[half_a ? 0 : 1], names[half_a ? 1 : 0]);
    if (refused)
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "lora: tensor %s: GGUF adapters of the keys and values of latent attention "
            "are not supported",
            names[0]);
    const int dim = place.matrices > 0 ? 1 : 0;
    const int64_t rank = half_a->ndim == dim + 2 ? half_a->shape[dim] : 0;
    TSR__REQUIRE(rank >= 1 && rank <= MAX_RANK,
                 "lora: tensor %s is %s; [%srank, %" PRId64 "] is needed", half_a->name,
                 TSR__SHAPE(half_a->ndim, half_a->shape), dim > 0 ? "experts, " : "", p->columns);
    TSR__TRY(check_half(half_a, place.matrices, rank, p->columns));
    TSR__TRY(check_half(half_b, place.matrices, place.all_rows, rank));
    *out = (tsr__adapter_module){.a = half_a,
                                 .b = half_b,
                                 .rank = rank,
                                 .inputs = p->columns,
                                 .outputs = p->rows,
                                 .first_row = place.first_row,
                                 .all_rows = place.all_rows,
                                 .interleaved_head = place.interleaved_head,
                                 .row_order = place.row_order,
                                 .column_order = place.column_order,
                                 .matrices = place.matrices,
                                 .matrix = place.matrix};
    TSR__TRY(find_magnitudes(a, tensor, place.all_rows, &out->m));
    char *ending = strrchr(tensor, '.');
    if (ending && strcmp(ending, ".weight") == 0)
        *ending = '\0';
    return set_scale(a, tensor, out);
}

tsr_status tsr__adapter_file_check_family(const tsr__adapter_file *a, const tsr__family *family)
{
    TSR__REQUIRE(*a->architecture == '\0' || strcmp(a->architecture, family->gguf) == 0,
                 "lora: the adapter is for architecture '%s'; the model's is '%s'", a->architecture,
                 family->gguf);
    return TSR_OK;
}

tsr_status tsr__adapter_file_check_used(const tsr__adapter_file *a, const tsr_model_config *config)
{
    const uint64_t count = tsr_shard_list_param_count(a->files.list);
    for (uint64_t i = 0; i < count; i++)
        TSR__REQUIRE(a->is_used[i],
                     "lora: the model has no weight for the adapter's tensor %s (%d layers of "
                     "%s)",
                     tsr_shard_list_param(a->files.list, i)->name, config->layers,
                     config->architecture);
    return TSR_OK;
}

/* Values --------------------------------------------------------------------------------------- */

/* Reads `rows` rows of a tensor, which counts as one matrix, from `first` on, as f32. The caller
 * must free *out, also after an error. */
static tsr_status read_rows(tsr__adapter_file *a, const tsr_shard_param *half, int64_t first,
                            int64_t rows, float **out)
{
    const int64_t columns = half->ndim > 1 ? half->shape[half->ndim - 1] : 1;
    const uint64_t row_bytes = (uint64_t)columns / half->block_count * half->block_bytes;
    uint8_t *raw = tsr__calloc((size_t)rows, (size_t)row_bytes);
    float *scratch = tsr__calloc((size_t)columns, sizeof *scratch);
    *out = tsr__calloc((size_t)(rows * columns), sizeof **out);
    tsr_status status = raw && scratch && *out ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__weight_source_read(&a->source, half, (uint64_t)first * row_bytes,
                                         (uint64_t)rows * row_bytes, raw);
    for (int64_t i = 0; status == TSR_OK && i < rows; i++)
        status = tsr__elements_convert(half, raw + (uint64_t)i * row_bytes, 0, columns, TSR_F32,
                                       *out + i * columns, scratch);
    tsr__free(raw);
    tsr__free(scratch);
    return status;
}

/* Returns which row of B's tensor, of one matrix, is row i of ours. */
static int64_t row_in_file(const tsr__adapter_module *m, int64_t i)
{
    const int64_t head = m->interleaved_head, in = head > 0 ? i % head : 0;
    if (head > 0)
        return m->first_row + i - in + in % (head / 2) * 2 + in / (head / 2);
    return m->first_row + tsr__order_in_file(&m->row_order, i);
}

/* Reads rows of B or of the magnitudes in our order. The caller must free *out, also after an
 * error. */
static tsr_status read_outputs(tsr__adapter_file *a, const tsr__adapter_module *m,
                               const tsr_shard_param *half, float **out)
{
    const int64_t columns = half->ndim > 1 ? m->rank : 1;
    float *rows = NULL;
    *out = tsr__calloc((size_t)(m->outputs * columns), sizeof **out);
    tsr_status status = *out ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = read_rows(a, half, m->matrix * m->all_rows, m->all_rows, &rows);
    for (int64_t i = 0; status == TSR_OK && i < m->outputs; i++)
        memcpy(*out + i * columns, rows + row_in_file(m, i) * columns,
               (size_t)columns * sizeof **out);
    tsr__free(rows);
    return status;
}

/* Reads A in our order. The caller must free *out, also after an error. */
static tsr_status read_inputs(tsr__adapter_file *a, const tsr__adapter_module *m, float **out)
{
    float *row = NULL;
    TSR__TRY(read_rows(a, m->a, m->matrix * m->rank, m->rank, out));
    if (m->column_order.run == 0)
        return TSR_OK;
    row = tsr__calloc((size_t)m->inputs, sizeof *row);
    if (!row)
        return TSR_ERR_NO_MEMORY;
    for (int64_t r = 0; r < m->rank; r++) {
        float *own = *out + r * m->inputs;
        memcpy(row, own, (size_t)m->inputs * sizeof *row);
        for (int64_t i = 0; i < m->inputs; i++)
            own[i] = row[tsr__order_in_file(&m->column_order, i)];
    }
    tsr__free(row);
    return TSR_OK;
}

tsr_status tsr__adapter_file_read(tsr__adapter_file *a, const tsr__adapter_module *m, float **out_a,
                                  float **out_b)
{
    *out_a = *out_b = NULL;
    tsr_status status = read_inputs(a, m, out_a);
    if (status == TSR_OK)
        status = read_outputs(a, m, m->b, out_b);
    if (status != TSR_OK) {
        tsr__free(*out_a);
        tsr__free(*out_b);
        *out_a = *out_b = NULL;
    }
    return status;
}

tsr_status tsr__adapter_file_read_magnitudes(tsr__adapter_file *a, const tsr__adapter_module *m,
                                             float **out)
{
    const tsr_status status = read_outputs(a, m, m->m, out);
    if (status != TSR_OK) {
        tsr__free(*out);
        *out = NULL;
    }
    return status;
}
